/-
Looks at a compiled submission as data. Our program: it imports nothing of the submission's syntax, runs none of
its code, and reads the environment instead of anything that was printed.

    lean --run checker.lean NAME        prints one line of JSON
-/
import Lean

open Lean

def valueOf : ConstantInfo → Option Expr
  | .defnInfo val => some val.value
  | .thmInfo val => some val.value
  | .opaqueInfo val => some val.value
  | _ => none

/-- Every constant that a constant rests on, axioms among them. -/
partial def visit (env : Environment) (name : Name) (seen : NameSet) : NameSet :=
  if seen.contains name then seen
  else
    let seen := seen.insert name
    match env.find? name with
    | none => seen
    | some info =>
      let ofValue := match valueOf info with
        | some value => value.getUsedConstants
        | none => #[]
      let constructors := match info with
        | .inductInfo val => val.ctors.toArray
        | _ => #[]
      let used := info.type.getUsedConstants ++ ofValue ++ constructors
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

/-- Whether a constant's type is the statement, universe parameters matched in their order. -/
def states (env : Environment) (info statement : ConstantInfo) : Bool :=
  match valueOf statement with
  | none => false
  | some value =>
    if info.levelParams.length != statement.levelParams.length then false
    else
      let type := info.type.instantiateLevelParams info.levelParams (statement.levelParams.map Level.param)
      if type == value then true
      else match Kernel.isDefEq env {} type value with
        | .ok answer => answer
        | .error _ => false

def isAxiom (env : Environment) (name : Name) : Bool :=
  match env.find? name with
  | some (.axiomInfo _) => true
  | _ => false

def main (args : List String) : IO UInt32 := do
  initSearchPath (← findSysroot)
  let env ← importModules #[{ module := `Problem }, { module := `Submission }] {} 0
  let target := (args.headD "").toName
  let reply :=
    match env.find? target, env.find? `trusted_statement with
    | some info, some statement =>
      let used := (visit env target {}).toList.filter (isAxiom env)
      Json.mkObj [
        ("kind", Json.str (kind info)),
        ("module", Json.str (moduleOf env target)),
        ("same", Json.bool (states env info statement)),
        ("unsafe", Json.bool (info.isUnsafe || info.isPartial)),
        ("axioms", Json.arr (used.map fun name =>
          Json.arr #[Json.str (toString name), Json.str (moduleOf env name)]).toArray)]
    | none, _ => Json.mkObj [("kind", Json.str "absent")]
    | _, none => Json.mkObj [("kind", Json.str "no statement")]
  IO.println reply.compress
  return 0
