% Runs one hypothesis on several programs. Our file; the hypothesis is read as data and never consulted.
%
%   task.pl          target(Name/Arity).  hidden(Name/Arity).  inferences(N).
%                    fact(Program, Fact).  example(Program, Sign, Fact).     in the order to be used
%   hypothesis.pl    what the policy wrote
%
% Prints one line per program, `PROGRAM pos 1 0 1 neg 0 0`, or one line that says why there is none:
% `syntax WHY`, `refused WHY`, `empty`, `timeout`, `memory`.

:- module(judge, []).
:- initialization(main, main).
:- use_module(library(lists)).
:- use_module(library(apply)).
:- use_module(library(aggregate)).
:- use_module(library(dif)).
:- set_prolog_flag(autoload, false).

:- op(900, fy, reading:not).                       % `not p(X)`, as many write it

% What hypotheses see besides their program; nothing of this file.
:- pure:use_module(library(lists)), pure:use_module(library(aggregate)), pure:use_module(library(dif)),
   set_module(pure:base(system)).

:- dynamic target/1, hidden/1, inferences/1, fact/2, example/3.
:- discontiguous fact/2, example/3.

main :-
    load_files('task.pl', [silent(true)]),
    catch(judged, stop(Why), writeln(Why)).

judged :-
    catch(read_hypothesis(Clauses), error(syntax_error(What), _), stop(syntax, What)),
    maplist(checked(Clauses), Clauses),
    target(Name/Arity),
    (   member(Clause, Clauses), head(Clause, Head), functor(Head, Name, Arity)
    ->  true
    ;   throw(stop(empty))
    ),
    findall(Program, fact(Program, _), Programs0), sort(Programs0, Programs),
    findall(Line, (member(Program, Programs), line(Program, Clauses, Line)), Lines),
    maplist(writeln, Lines).

stop(Kind, What) :-
    format(atom(Why), '~w ~q', [Kind, What]),
    throw(stop(Why)).

% --- reading -------------------------------------------------------------------------------------------

read_hypothesis(Clauses) :-
    setup_call_cleanup(open('hypothesis.pl', read, In, [encoding(utf8)]), read_clauses(In, Clauses), close(In)).

read_clauses(In, Clauses) :-
    read_term(In, Term, [module(reading), syntax_errors(error), cycles(false), dotlists(false)]),
    (   Term == end_of_file -> Clauses = [] ; Clauses = [Term|Rest], read_clauses(In, Rest) ).

head((Head :- _), Head) :- !.
head(Head, Head).

% --- only pure clauses ---------------------------------------------------------------------------------

checked(_, Clause) :- nonvar(Clause), no_clause(Clause), !, stop(refused, Clause).
checked(Clauses, Clause) :-
    head(Clause, Head),
    (   callable(Head), Head \= _:_ -> true ; stop(refused, Clause) ),
    functor(Head, Name, Arity),
    (   predicate_property(system:Head, defined) -> stop(refused, Name/Arity) ; true ),
    (   ( fact(_, Fact), functor(Fact, Name, Arity) ; hidden(Name/Arity) ) -> stop(refused, Name/Arity) ; true ),
    (   Clause = (_ :- Body) -> goal(Clauses, Body) ; true ).

no_clause(:- _).
no_clause(?- _).
no_clause(_ --> _).
no_clause(_ => _).
no_clause((_ , _)).

goal(_, Goal) :- \+ callable(Goal), !, stop(refused, Goal).
goal(Clauses, Goal) :- control(Goal), !, Goal =.. [_|Goals], maplist(goal(Clauses), Goals).
goal(Clauses, Goal) :- meta(Goal, Inner), !, goal(Clauses, Inner).
goal(_, Goal) :- functor(Goal, Name, Arity), pure(Name/Arity), !.
goal(Clauses, Goal) :-
    functor(Goal, Name, Arity),
    (   member(Clause, Clauses), head(Clause, Head), functor(Head, Name, Arity) -> true
    ;   fact(_, Fact), functor(Fact, Name, Arity) -> true
    ;   ( target(Name/Arity) ; hidden(Name/Arity) ) -> true
    ;   predicate_property(pure:Goal, defined) -> stop(refused, Name/Arity)
    ;   true                                       % nobody defines it: it fails
    ).

control((_, _)).
control((_ ; _)).
control((_ -> _)).
control((_ *-> _)).
control(\+ _).
control(not(_)).
control(once(_)).
control(ignore(_)).
control(forall(_, _)).

meta(findall(_, Goal, _), Goal).
meta(findall(_, Goal, _, _), Goal).
meta(aggregate_all(What, Goal, _), Goal) :- nonvar(What).
meta(bagof(_, Goal, _), Inner) :- without_carets(Goal, Inner).
meta(setof(_, Goal, _), Inner) :- without_carets(Goal, Inner).

without_carets(Goal, Goal) :- var(Goal), !.
without_carets(_ ^ Goal, Inner) :- !, without_carets(Goal, Inner).
without_carets(Goal, Goal).

pure(true/0). pure(fail/0). pure(false/0). pure(!/0).
pure((=)/2). pure((\=)/2). pure((==)/2). pure((\==)/2). pure(dif/2). pure((?=)/2). pure(compare/3).
pure((@<)/2). pure((@>)/2). pure((@=<)/2). pure((@>=)/2).
pure((is)/2). pure((<)/2). pure((>)/2). pure((=<)/2). pure((>=)/2). pure((=:=)/2). pure((=\=)/2).
pure(between/3). pure(succ/2). pure(plus/3).
pure(var/1). pure(nonvar/1). pure(atom/1). pure(number/1). pure(integer/1). pure(atomic/1). pure(ground/1).
pure(atom_chars/2). pure(atom_codes/2). pure(atom_length/2). pure(atom_concat/3). pure(sub_atom/5).
pure(char_code/2). pure(number_codes/2). pure(atom_number/2). pure(atom_string/2). pure(string_concat/3).
pure(length/2). pure(msort/2). pure(sort/2). pure(sort/4). pure(memberchk/2). pure(copy_term/2).
pure(functor/3). pure(arg/3). pure((=..)/2).
pure(member/2). pure(append/3). pure(append/2). pure(nth0/3). pure(nth1/3). pure(last/2). pure(reverse/2).
pure(select/3). pure(subtract/3). pure(permutation/2). pure(delete/3).
pure(sum_list/2). pure(max_list/2). pure(min_list/2). pure(max_member/2). pure(min_member/2).
pure(list_to_set/2). pure(numlist/3). pure(union/3). pure(intersection/3). pure(subset/2).

% --- running -------------------------------------------------------------------------------------------

line(Program, Clauses, Line) :-
    set_module(Program:base(pure)),
    set_prolog_flag(Program:unknown, fail),
    forall(fact(Program, Fact), added(Program, Fact)),
    forall(member(Clause, Clauses), added(Program, Clause)),
    results(Program, pos, Positive),
    results(Program, neg, Negative),
    append([[Program, pos], Positive, [neg], Negative], Words),
    atomic_list_concat(Words, ' ', Line).

added(Program, Clause) :-
    head(Clause, Head),
    functor(Head, Name, Arity),
    dynamic(Program:Name/Arity),
    assertz(Program:Clause).

results(Program, Sign, Results) :-
    findall(Result, (example(Program, Sign, Fact), result(Program, Fact, Result)), Results).

result(Program, Fact, Result) :-
    inferences(Limit),
    catch(call_with_inference_limit(derived(Program, Fact, Result0), Limit, How), Error, failed(Error)),
    (   How == inference_limit_exceeded -> throw(stop(timeout))
    ;   var(Result0) -> Result = 0
    ;   Result = Result0
    ).

derived(Program, Fact, Result) :-
    (   Program:Fact -> Result = 1 ; Result = 0 ).

failed(error(resource_error(_), _)) :- !, throw(stop(memory)).
failed(stop(Why)) :- !, throw(stop(Why)).
failed(_).                                         % a type error in arithmetic, say: nothing is derived
