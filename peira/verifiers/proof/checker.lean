/-
Looks at a compiled submission as data. Our program: it imports nothing of the submission's syntax, runs none of
its code, and reads the environment instead of anything that was printed.

    lean --run checker.lean NAME        prints one line of JSON
-/
import Lean

open Lean

/-- Every constant that a constant rests on, axioms among them. -/
partial def visit (env : Environment) (name : Name) (seen : NameSet) : NameSet :=
  if seen.contains name then seen
  else
    let seen := seen.insert name
    match env.find? name with
    | none => seen
    | some info =>
      let used := info.type.getUsedConstants
        ++ (match info.value? (allowOpaque := true) with
            | some value => value.getUsedConstants
            | none => #[])
        ++ (match info with
            | .inductInfo val => val.ctors.toArray
            | _ => #[])
      used.foldl (fun seen other => visit env other seen) seen

def moduleOf (env : Environment) (name : Name) : String :=
  match env.getModuleIdxFor? name with
  | some index => toString (env.header.moduleNames[index.toNat]!)
  | none => ""

def kind : ConstantInfo → String
  | .thmInfo _ => "theorem"
  | .defnInfo _ => "definition"
  | .axiomInfo _ => "axiom"
  | .opaqueInfo _ => "opaque"
  | _ => "other"

def main (args : List String) : IO UInt32 := do
  initSearchPath (← findSysroot) ["."]
  let env ← importModules #[{ module := `Problem }, { module := `Submission }] {} 0
  let target := (args.headD "").toName
  let reply ← match env.find? target, env.find? `trusted_statement with
    | some info, some statement =>
      let same := info.levelParams.isEmpty && statement.value?.any fun value =>
        info.type == value || (match Kernel.isDefEq env {} info.type value with
          | .ok answer => answer
          | .error _ => false)
      let axioms := (visit env target {}).toArray.filter fun name =>
        match env.find? name with
        | some (.axiomInfo _) => true
        | _ => false
      pure <| Json.mkObj [
        ("kind", kind info),
        ("module", moduleOf env target),
        ("same", same),
        ("unsafe", info.isUnsafe || info.isPartial),
        ("axioms", Json.arr (axioms.map fun name => Json.arr #[toString name, moduleOf env name]))]
    | none, _ => pure <| Json.mkObj [("kind", "absent")]
    | _, none => pure <| Json.mkObj [("kind", "no statement")]
  IO.println reply.compress
  return 0
