"""The worker of an encoder instance on a CPU under vLLM's second model runner.

    --worker-cls encoder_only_worker.EncoderOnlyWorker

vLLM's GPU worker gives a pure producer a runner that has the encoder alone; its CPU worker does
not. This does. Other roles keep the runner that the CPU worker gives them.
"""

from vllm.v1.worker.cpu_worker import CPUWorker


class EncoderOnlyWorker(CPUWorker):
    def init_device(self) -> None:
        super().init_device()
        if not (self.use_v2_model_runner and self.vllm_config.is_mm_encoder_only):
            return
        from vllm.v1.worker.mm_encoder_model_runner import MMEncoderModelRunner

        class Runner(MMEncoderModelRunner):
            def warming_up_model(self) -> None:
                """As the CPU runner: there is nothing to warm up without compiled graphs."""

        self.model_runner = Runner(self.vllm_config, self.device)
