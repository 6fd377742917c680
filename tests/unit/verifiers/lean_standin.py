"""A stand-in for Lean's programs: it answers by a table and understands nothing.

The replies in the table were written after Lean's documentation, not taken from a Lean. What it shows is that
the verifier concludes the right thing from each reply, whatever a submission does to get it.

    standin.py lean --print-prefix | -o OUT IN | --run checker.lean NAME
    standin.py lean4checker MODULE
    standin.py repl                              JSON commands on standard input
"""

import json
import pathlib
import re
import sys
import time

TABLE = json.loads((pathlib.Path(__file__).parent / "table.json").read_text())


def row_for(source):
    return next((row for row in TABLE if re.search(rf"\b{row['marker']}\b", source)), {})


def lean(arguments):
    if arguments == ["--print-prefix"]:
        print(pathlib.Path(__file__).parent)
        return 0
    if arguments[0] == "-o":
        source = pathlib.Path(arguments[2]).read_text()
        row = row_for(source) if arguments[2] == "Submission.lean" else {}
        if "BROKEN" in source:
            row = {"compile": "Problem.lean:2:0: error: unknown identifier"}
        while time.process_time() < row.get("seconds", 0):
            pass
        if "compile" in row:
            print(row["compile"])
            return 1
        pathlib.Path(arguments[1]).write_text(source)
        return 0
    row = row_for(pathlib.Path("Submission.olean").read_text())
    print(
        json.dumps(
            {"kind": "theorem", "module": "Submission", "same": True, "unsafe": False, "axioms": []}
            | row["check"]
        )
    )
    return 0


def replay(arguments):
    assert arguments == ["Submission"]
    row = row_for(pathlib.Path("Submission.olean").read_text())
    if row.get("replay"):
        print(f"uncaught exception: {row['replay']}", file=sys.stderr)
        return 1
    return 0


def repl():
    environments = 0
    log = pathlib.Path("asked.jsonl")
    while True:
        lines = []
        for line in sys.stdin:
            if not line.strip():
                break
            lines.append(line)
        if not lines:
            return 0
        command = json.loads("".join(lines))
        with log.open("a") as file:
            file.write(json.dumps(command) + "\n")
        if "CRASH" in command["cmd"]:
            return 1
        row = row_for(command["cmd"]) if "env" in command else {}
        reply = {"env": environments}
        if "compile" in row:
            reply["messages"] = [{"severity": "error", "data": row["compile"]}]
        if "BROKEN" in command["cmd"]:
            reply["messages"] = [{"severity": "error", "data": "unknown module"}]
        if row.get("sorries"):
            reply["sorries"] = [{"goal": "False"}]
        environments += 1
        print(json.dumps(reply, indent=1) + "\n", flush=True)


if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    sys.exit({"lean": lambda: lean(rest), "replay": lambda: replay(rest), "repl": repl}[name]())
