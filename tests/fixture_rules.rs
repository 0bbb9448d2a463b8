//! Rules of the seeded checkpoints that only a run shows: without them, planted bugs would have nothing to
//! break.

use fixtures::Preset;
use reference::Reference;
use rstest::rstest;
use spec::side::Nothing;
use spec::{Case, ExpertId, LayerKind, Precision, Routing, Run, Schedule, Side};

#[rstest]
#[case(Preset::Pattern5, 0)]
#[case(Preset::Pattern5, 1)]
#[case(Preset::RealLayout, 28)]
#[case(Preset::RealLayout, 29)]
fn the_routes_of_a_preset_have_what_bugs_need(#[case] preset: Preset, #[case] seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("checkpoint");
    fixtures::make(preset, seed, None, &dir, &|_| {}).unwrap();
    let reference = Reference::open(&dir, reference::Options::default()).unwrap();
    let config = reference.config();
    let tokens = fixtures::random_tokens(seed, config.vocab_size, preset.default_tokens());
    let case = Case::new("case", tokens).unwrap();
    let schedule = Schedule::chunks_of(128);
    let run = Run { case: &case, schedule, routing: Routing::Free, precision: Precision::F32 };
    let executed = reference.forward(&[run], &mut Nothing).unwrap().remove(0);
    let tokens_of = |layer, expert| {
        (0..case.len()).filter(|&t| executed.choices.at(t, layer).contains(&ExpertId(expert))).count()
    };
    let experts = 0..u16::try_from(config.num_experts).unwrap();
    let counts: Vec<usize> = config
        .layer_ids()
        .flat_map(|layer| experts.clone().map(move |e| (layer, e)))
        .map(|(l, e)| tokens_of(l, e))
        .collect();
    assert!(counts.contains(&0), "an expert without a token");
    assert!(counts.contains(&2), "an expert with exactly two tokens: {counts:?}");
    let window = config.sliding_window.unwrap();
    assert!(case.len() > window && (case.len() - window) % 2 == 1, "past the window by an odd amount");
    assert_ne!(case.len() % 128, 0, "a last chunk that is not full");
    assert_ne!(case.len() * config.experts_per_token % 64, 0, "rows that fill no tile");
    for kind in [LayerKind::Sliding, LayerKind::Full] {
        assert!(config.layers.iter().filter(|&&k| k == kind).count() >= 2, "two layers of each kind");
    }
}
