//! The planted bug is what explains the port that it is planted in, alone and together with another.

#[allow(dead_code, reason = "the program uses all of it")]
#[path = "../src/bench.rs"]
mod bench;
#[path = "support/remembering.rs"]
mod remembering;
mod support;

use diff::bench::{Bench, Occasion};
use diff::explain::{Finding, Outcome, Question, explain};
use remembering::Remembering;
use spec::{Case, ExpertId, LayerId, Precision, Schedule, TokenId};

/// More than the window's 33, so that its bugs show.
const TOKENS: usize = 42;
/// Two calls, then a third of three tokens.
const CHUNK: usize = 18;
const DECODE_FROM: usize = 39;
const PAIRS: usize = 30;
const PAIRS_FOUND_MIN: usize = 27;
const IDLE: diff::bench::Idle = (LayerId(9), ExpertId(0));

fn workbench() -> bench::Workbench {
    bench::Workbench::open(&fixtures::data("kolibri-tiny-kjv"), None, None).unwrap()
}

fn case() -> Case {
    let text = std::fs::read(fixtures::data("texts/kjv-heldout.txt")).unwrap();
    Case::new("text", text[..TOKENS].iter().map(|&byte| TokenId(byte.into())).collect()).unwrap()
}

/// Explains the port with these bugs; `None` if the port cannot have them.
fn explained(bench: &dyn Bench, bugs: &str) -> Option<Finding> {
    let port = bench.mutated_port(bugs, Precision::F32, IDLE).ok()?;
    Some(explained_port(bench, &*port))
}

fn explained_port(bench: &dyn Bench, port: &dyn spec::Side) -> Finding {
    let schedule = Schedule { decode_from: Some(DECODE_FROM), ..Schedule::chunks_of(CHUNK) };
    let precision = Precision::F32;
    explain(&Question { bench, port, case: &case(), schedule, precision, together: 3 }, &mut ()).unwrap()
}

/// The bugs that both sides can have and that this sequence can show.
fn twins(bench: &dyn Bench) -> Vec<&'static str> {
    let occasion =
        Occasion { tokens: TOKENS, chunk: CHUNK, nonzero_bias: true, wide_bias: false, batch: false };
    let both = mutants::catalogue().filter(|bug| bug.port.is_some() && bug.reference().is_some());
    both.map(|bug| bug.id)
        .filter(|id| {
            let unmet = bench.unmet(id, &occasion);
            unmet.iter().for_each(|need| println!("{id} is not exercised: needs {need}"));
            unmet.is_empty()
        })
        .collect()
}

#[test]
fn a_correct_port_leaves_nothing_to_explain() {
    let bench = workbench();
    let found = explained_port(&bench, &*bench.port(Precision::F32).unwrap());
    assert_eq!(found.outcome, Outcome::NothingToExplain, "{}", found.sentence);
    assert_eq!(found.passes, 1);
}

#[test]
fn every_bug_that_both_sides_can_have_explains_itself() {
    let bench = Remembering::new(workbench());
    let twins = twins(&bench);
    assert!(twins.len() >= 35, "{} bugs", twins.len());
    let wrong = |id: &&str| {
        let found = explained(&bench, id).expect("a port can have it");
        let first = &found.hypotheses[0];
        let names_it = found.outcome == Outcome::Bugs && first.bugs == [*id] && first.same_as.is_empty();
        (!names_it).then(|| format!("{id}: {}", found.sentence))
    };
    assert_eq!(twins.iter().filter_map(wrong).collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn of_thirty_pairs_of_bugs_nine_in_ten_are_found() {
    let bench = Remembering::new(workbench());
    let twins = twins(&bench);
    let mut state = 4_u64;
    let mut draw = || {
        // splitmix64: the same pairs everywhere
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        twins[((z ^ (z >> 31)) % twins.len() as u64) as usize]
    };
    let (mut tried, mut missed) = (Vec::new(), Vec::new());
    while tried.len() < PAIRS {
        let mut pair = [draw(), draw()];
        pair.sort_unstable();
        let ids = pair.join(",");
        if pair[0] == pair[1] || tried.contains(&pair) || !bench.together(&ids) {
            continue;
        }
        let Some(found) = explained(&bench, &ids) else { continue };
        tried.push(pair);
        if found.outcome != Outcome::Bugs || found.hypotheses[0].bugs != pair {
            missed.push(format!("{ids}: {}", found.sentence));
        }
    }
    assert!(PAIRS - missed.len() >= PAIRS_FOUND_MIN, "{missed:#?}");
}

#[test]
fn the_program_says_what_explains_the_divergence() {
    let out = support::stdout(&[
        "explain",
        support::TRAINED,
        "--text",
        support::TEXT,
        "--length",
        "40",
        "--port-mutant",
        "renorm_topk",
    ]);
    let first = out.lines().next().expect("a sentence");
    assert!(first.starts_with("agrees with the reference to "), "{first}");
    assert!(
        first.contains("if the k weights are divided by their sum (`renorm_topk`); next best "),
        "{first}"
    );
}

#[test]
fn several_sequences_are_refused() {
    let error = support::refusal(&[
        "explain",
        support::TRAINED,
        "--text",
        support::TEXT,
        "--length",
        "40",
        "--sequences",
        "2",
    ]);
    assert!(error.contains("--sequences"), "{error}");
}
