#!/usr/bin/env bash
# The prefill and decode instance: thinks, and reads encoder outputs from the encoder instance alone.
#
#     MODEL=Qwen/Qwen2-VL-2B-Instruct examples/epd/decoder.sh [options of vLLM's]
set -euo pipefail

: "${MODEL:?set MODEL to the encoder instance\'s model, spelled alike}"
# What the encoder instance announces, spelled as it does.
producer=${ENCODER_HOST:-localhost}:${ENCODER_PORT:-5601}

exec python3 -m vllm.entrypoints.openai.api_server \
  --model "$MODEL" --served-model-name model --host 127.0.0.1 --port "${PORT:-8002}" \
  --ec-transfer-config '{
    "ec_connector": "ChiasmConnector",
    "ec_connector_module_path": "chiasm.vllm",
    "ec_role": "ec_consumer",
    "engine_id": "'"${ENGINE_ID:-epd-decoder}"'",
    "ec_connector_extra_config": {
      "ec_cpu_bytes": "'"${REGION:-1GiB}"'",
      "ec_remote": true,
      "ec_allowed_peers": ["'"$producer"'"]
    }
  }' "$@"
