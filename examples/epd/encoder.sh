#!/usr/bin/env bash
# The encoder instance: sees images, answers with where their encoder outputs can be read.
#
#     MODEL=Qwen/Qwen2-VL-2B-Instruct examples/epd/encoder.sh [options of vLLM's]
set -euo pipefail

: "${MODEL:?set MODEL to a vision-language model: a name or a folder}"
# Loopback alone: both instances are on this host. Elsewhere, an address that consumers reach.
export VLLM_EC_SIDE_CHANNEL_HOST=${ENCODER_HOST:-localhost}
# Pinned, so that the consumer's allowlist can name it.
export VLLM_EC_SIDE_CHANNEL_PORT=${ENCODER_PORT:-5601}

exec python3 -m vllm.entrypoints.openai.api_server \
  --model "$MODEL" --served-model-name model --host 127.0.0.1 --port "${PORT:-8001}" \
  --mm-encoder-only --no-enable-prefix-caching \
  --ec-transfer-config '{
    "ec_connector": "ChiasmConnector",
    "ec_connector_module_path": "chiasm.vllm",
    "ec_role": "ec_producer",
    "engine_id": "'"${ENGINE_ID:-epd-encoder}"'",
    "ec_connector_extra_config": {
      "ec_cpu_bytes": "'"${REGION:-1GiB}"'",
      "ec_remote": true
    }
  }' "$@"
