"""Tasks in, groups of rollouts out: one request per task, G completions each.

tasks --render--> requests --engine.sample--> completions (as they finish) --decode--> rollouts --> groups
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import aclosing

from peira.engines.protocol import Engine
from peira.errors import EngineError
from peira.types.rollout import Completion, Group, Rollout, SampleRequest, SamplingParams, Turn
from peira.types.task import Task
from peira.types.tokenizer import Tokenizer


def seed_of(*parts: object) -> int:
    """A 63-bit seed that depends on every part and on nothing else.

    Random numbers are a function of where they are used (run seed, step, draw), never of a generator's state:
    that is why a resumed run needs no such state to draw the same completions.
    """
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


async def collect_groups(
    engine: Engine,
    tokenizer: Tokenizer,
    tasks: Sequence[Task],
    *,
    group_size: int,
    params: SamplingParams,
    seed: int,
    label: str,
    first_draw: int = 0,
    on_rollout: Callable[[int, int], None] | None = None,
) -> list[Group]:
    """Draw `group_size` rollouts for each task, in task order.

    Args:
        seed: of the run; with `label` and the draw's number it fixes every completion.
        label: prefix of the rollouts' ids, such as "12" for step 12.
        first_draw: number of the first task among those drawn under this label; refills continue the count.
        on_rollout: called with (finished, planned) as rollouts come in; what it raises ends the sampling.

    Raises:
        EngineError: the engine gave too few, too many or unknown completions.
    """
    prompts = [tokenizer.render(task.prompt) for task in tasks]
    requests = [
        SampleRequest(
            id=f"{label}/{first_draw + i}",
            prompt_ids=prompt,
            num_samples=group_size,
            params=params,
            seed=seed_of(seed, label, first_draw + i),
        )
        for i, prompt in enumerate(prompts)
    ]
    found: dict[str, dict[int, Completion]] = {request.id: {} for request in requests}
    planned = len(requests) * group_size
    finished = 0
    async with aclosing(engine.sample(requests)) as completions:
        async for completion in completions:
            slots = found.get(completion.request_id)
            if slots is None or completion.index in slots or not 0 <= completion.index < group_size:
                raise EngineError(
                    f"sample: completion {completion.request_id!r}/{completion.index} was not asked for "
                    f"({len(requests)} requests of {group_size}); the engine breaks its contract"
                )
            slots[completion.index] = completion
            finished += 1
            if on_rollout is not None:
                on_rollout(finished, planned)
            await asyncio.sleep(0)  # lets an interrupt be noticed between completions
    groups = []
    for task, request in zip(tasks, requests, strict=True):
        slots = found[request.id]
        if len(slots) != group_size:
            raise EngineError(f"sample: request {request.id!r} gave {len(slots)} of {group_size} completions")
        groups.append(
            Group(
                task=task,
                rollouts=tuple(
                    Rollout(
                        id=f"{request.id}/{index}",
                        task=task,
                        turns=(
                            Turn(
                                prompt_ids=request.prompt_ids,
                                completion=slots[index],
                                text=tokenizer.decode(slots[index].token_ids),
                            ),
                        ),
                    )
                    for index in range(group_size)
                ),
            )
        )
    return groups
