"""A configuration becomes everything a run needs: cheap things first, weights last.

RunConfig --prepare--> Prepared (tasks, tokenizer, verifiers, algorithm) --open_parts--> Parts (engines too)
                           |                                                    |
                           '-- plan, pre-flight                                 '-- train, evaluate, doctor
"""

import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from transformers import PretrainedConfig

from peira.algorithms.family import Algorithm
from peira.build.algorithm import build_algorithm, check_rates
from peira.build.data import TaskSets, build_tasks, limit_prompts
from peira.build.engine import build_engine, build_reference
from peira.build.model import build_folder, build_tokenizer, check_vocabulary
from peira.build.verifier import build_second_opinion, build_verifiers
from peira.config.load import load_config as load_settings
from peira.config.run import RunConfig
from peira.config.show import as_yaml
from peira.engines.protocol import Engine
from peira.errors import CheckpointError, ConfigError, ExitCode, PeiraError, RunError
from peira.models.hf import check_fit, check_weights, load_config, resolve_device, resolve_dtype
from peira.models.tokenizer import HFTokenizer
from peira.pipeline.probe import GapAudit
from peira.runs.evaluation import EvalQuestion, EvalRecord
from peira.runs.layout import RunFolder
from peira.runs.reader import RunReader
from peira.runs.writer import RunWriter
from peira.trainer.checkpoint import latest_checkpoint, latest_fingerprint
from peira.trainer.evaluate import evaluate
from peira.trainer.loop import Interrupt, Observer, Run, Summary, train
from peira.trainer.sinks import open_sinks, require_extras
from peira.trainer.state import trace_fingerprint, trace_settings
from peira.trainer.step import Parts
from peira.verifiers.channels import VerifierSet
from peira.verifiers.code.verifier import CodeVerifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """All of a run but its weights. A context manager: it ends the verifiers' processes."""

    config: RunConfig
    model_folder: Path
    model_config: PretrainedConfig
    tokenizer: HFTokenizer
    context_tokens: int | None
    """Positions the model was built for; None when its configuration names no limit."""
    sets: TaskSets
    verifiers: VerifierSet
    second_opinion: VerifierSet | None
    """Who hears appeals, if there are any."""
    algorithm: Algorithm
    device: torch.device
    dtype: torch.dtype

    @property
    def run_folder(self) -> Path:
        """Where this run is written."""
        return run_folder(self.config)

    @asynccontextmanager
    async def open_parts(self, *, training: bool = True) -> AsyncIterator[Parts]:
        """Load the weights; the engines are closed at the end.

        Args:
            training: False leaves the reference out, which only a loss needs.
        """
        engine = build_engine(self.config, self.model_folder, self.tokenizer)
        reference = None
        others: list[Engine] = []
        try:
            if training and self.algorithm.needs_reference:
                reference = build_reference(self.config, self.model_folder, self.tokenizer)
                for other in self.config.algorithm.kl.others:
                    run = self.config.model_copy(update={"model": other.model})
                    others.append(build_reference(run, build_folder(other.model), self.tokenizer))
            yield Parts(
                engine=engine,
                reference=reference,
                other_references=tuple(others),
                tokenizer=self.tokenizer,
                tasks=self.sets.train,
                held_out=self.sets.held_out,
                judge=self.verifiers.judge,
                combine=self.verifiers.combine,
                channels=tuple(channel.name for channel in self.verifiers.channels),
                algorithm=self.algorithm,
                second_opinion=None if self.second_opinion is None else self.second_opinion.judge,
                audit=self.audit,
            )
        finally:
            await engine.close()
            for each in (reference, *others):
                if each is not None:
                    await each.close()

    @property
    def audit(self) -> GapAudit | None:
        """The comparison of visible with held-out tests that a code verifier brings."""
        coders = [c.verifier for c in self.verifiers.channels if isinstance(c.verifier, CodeVerifier)]
        return coders[0].audit if coders else None

    def close(self) -> None:
        """End the verifiers' processes."""
        self.verifiers.close()
        if self.second_opinion is not None:
            self.second_opinion.close()

    def __enter__(self) -> "Prepared":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def run_folder(config: RunConfig) -> Path:
    """Where a run with this configuration is written."""
    return Path(config.runs_dir).expanduser() / config.name


def check_folder(config: RunConfig, *, resume: bool) -> None:
    """Refuse, before anything is loaded or written, a folder that this configuration cannot continue.

    `RunWriter` decides in the end whether somebody else is writing there.

    Raises:
        RunError: a run is there and `resume` was not asked for.
        CheckpointError: its checkpoints were written under other settings; the message names them.
    """
    folder = RunFolder(run_folder(config))
    if not folder.is_run:
        return
    if not resume:
        raise RunError(
            f"run folder: {folder.path}: expected no run there; continue it with --resume, or choose another "
            "name=..."
        )
    found = latest_fingerprint(folder.checkpoints_folder)
    if found is None or found == trace_fingerprint(config):
        return
    try:
        saved = dict(_leaves(trace_settings(load_settings(folder.config_file, notice=lambda text: None))))
    except PeiraError:
        saved = {}
    now = dict(_leaves(trace_settings(config)))
    changes = (
        [
            f"{key} = {now.get(key)!r} (was {saved.get(key)!r})"
            for key in {**saved, **now}
            if now.get(key) != saved.get(key)
        ]
        if saved
        else []
    )
    raise CheckpointError(
        f"{folder.path}: {', '.join(changes) or 'settings of another version of peira'}: expected those that "
        "the run was begun with, since a resumed run continues the same loss trace; leave them as in its "
        "config.yaml, or start a new run from a checkpoint: another name, and "
        f"model={folder.checkpoints_folder}/step-N"
    )


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of everything in a tree of mappings and lists."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else None
    if not items:
        yield path, tree
        return
    for key, value in items:
        yield from _leaves(value, f"{path}.{key}" if path else str(key))


def prepare(config: RunConfig) -> Prepared:
    """Read the data, find the model, start the verifiers. No weights are loaded.

    Raises:
        ConfigError: a setting does not fit what it names.
        DataError: a row is not a task, a prompt is too long, or a task names a verifier that is not there.
        ModelError: the model or its tokenizer cannot be used.
    """
    require_extras(config.logging)
    algorithm = build_algorithm(
        config.algorithm,
        max_tokens=config.sampling.max_tokens,
        channels={verifier.name or verifier.kind: verifier.weight for verifier in config.verifiers},
    )
    sets = build_tasks(config.data, config.seed)
    folder = build_folder(config.model)
    check_weights(folder)
    tokenizer = build_tokenizer(config.model)
    device = resolve_device(getattr(config.engine, "device", "cpu"))
    dtype = resolve_dtype(config.model.dtype, device)
    model_config = load_config(folder, trust_remote_code=config.model.trust_remote_code)
    check_fit(model_config, tokenizer)
    for index, other in enumerate(config.algorithm.kl.others):
        check_vocabulary(tokenizer, other.model, f"algorithm.kl.others.{index}.model.name")
    for index, token in enumerate(config.sampling.stop_token_ids):
        if not 0 <= token < tokenizer.vocabulary_size:
            raise ConfigError(
                f"sampling.stop_token_ids.{index} = {token}: expected an id of the tokenizer, 0 to "
                f"{tokenizer.vocabulary_size - 1}; no other can be drawn"
            )
    context = _context_tokens(model_config)
    sets = limit_prompts(
        sets,
        lambda task: len(tokenizer.render(task.prompt)),
        max_tokens=_prompt_budget(config, context),
        long_prompts=config.data.long_prompts,
    )
    check_rates(config.algorithm.noise, {task.source for task in sets.train.tasks})
    verifiers = build_verifiers(config.verifiers, config.judging)
    try:
        verifiers.check((*sets.train.tasks, *sets.held_out))
        appeals = config.algorithm.noise.appeals
        second = None if appeals is None else build_second_opinion(appeals.verifier, config.judging)
    except PeiraError:
        verifiers.close()
        raise
    return Prepared(
        config=config,
        model_folder=folder,
        model_config=model_config,
        tokenizer=tokenizer,
        context_tokens=context,
        sets=sets,
        verifiers=verifiers,
        second_opinion=second,
        algorithm=algorithm,
        device=device,
        dtype=dtype,
    )


async def run_training(prepared: Prepared, observer: Observer, *, resume: bool) -> Summary:
    """Train until every planned step is taken, a rule stops the run, or Ctrl-C or SIGTERM asks it to save.

    Raises:
        StopRun: a stop rule fired, or the run was interrupted; everything up to the last step is saved.
        RunError: another process writes this run, or one is there and `resume` is False.
        CheckpointError: the run that is there was begun with other settings.
    """
    config = prepared.config
    check_folder(config, resume=resume)
    facts: dict[str, Any] = {
        "device": str(prepared.device),
        "dtype": str(prepared.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
    }
    if prepared.device.type == "cuda":
        facts["device_name"] = torch.cuda.get_device_name(prepared.device)
    with RunWriter.create(prepared.run_folder, as_yaml(config), resume=resume, facts=facts) as writer:
        async with prepared.open_parts() as parts:
            sinks = open_sinks(
                config.logging,
                prepared.run_folder,
                name=config.name,
                config=config.model_dump(mode="json"),
                history=_history(config, writer),
                warn=observer.on_event,
            )
            run = Run(config=config, parts=parts, writer=writer, sink=sinks, observer=observer)
            code: int = ExitCode.DONE
            try:
                with _signals(run.interrupt):
                    return await train(run)
            except BaseException as error:
                code = error.exit_code if isinstance(error, PeiraError) else 1
                raise
            finally:
                sinks.close(code)


async def run_evaluation(
    prepared: Prepared, on_rollout: Callable[[int, int], None]
) -> tuple[EvalRecord, list[EvalQuestion]]:
    """Measure the model on the held-out tasks, as `evaluation` says.

    Args:
        on_rollout: told (finished, planned) completions of the present mode.
    """
    config = prepared.config
    async with prepared.open_parts(training=False) as parts:
        await parts.engine.sync_weights()
        return await evaluate(
            parts.engine,
            parts.tokenizer,
            parts.held_out,
            parts.judge,
            config.evaluation,
            step=0,
            max_tokens=config.sampling.max_tokens,
            stop_strings=config.sampling.stop_strings,
            stop_token_ids=config.sampling.stop_token_ids,
            seed=config.seed,
            audit=parts.audit,
            on_rollout=on_rollout,
        )


def _history(config: RunConfig, writer: RunWriter) -> list[dict[str, float]]:
    """Metrics up to the checkpoint that a resumed run continues from."""
    folder = writer.folder
    if not writer.resumed:
        return []
    found, _ = latest_checkpoint(folder.checkpoints_folder, fingerprint=trace_fingerprint(config))
    last = found.state.step if found is not None else 0
    return [record for record in RunReader(folder.path).metrics() if record["step"] <= last]


@contextmanager
def _signals(interrupt: Interrupt) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM asks the run to save and end; a second Ctrl-C ends it at once.

    Only the main thread hears signals: elsewhere nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if interrupt.is_set and number == signal.SIGINT:
            raise KeyboardInterrupt
        interrupt.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _context_tokens(model: PretrainedConfig) -> int | None:
    text = model.get_text_config(decoder=True)
    for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
        value = getattr(text, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _prompt_budget(config: RunConfig, context: int | None) -> int:
    """The longest prompt that leaves room for a completion."""
    room = None if context is None else context - config.sampling.max_tokens
    if room is not None and room < 1:
        raise ConfigError(
            f"sampling.max_tokens = {config.sampling.max_tokens}: expected fewer than the model's context of "
            f"{context} tokens, so that a prompt fits before them"
        )
    asked = config.data.max_prompt_tokens
    if asked is not None and room is not None and asked > room:
        raise ConfigError(
            f"data.max_prompt_tokens = {asked}: expected at most {room}: the model's context of {context} "
            f"tokens minus sampling.max_tokens = {config.sampling.max_tokens}"
        )
    limits = [limit for limit in (asked, room) if limit is not None]
    return min(limits) if limits else 2**31
