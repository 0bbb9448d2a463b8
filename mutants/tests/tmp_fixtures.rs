mod support;
use mutants::{PortPlant, Facts, catalogue, variants, edit::apply};
use port::Port;
use reference::Reference;
use spec::*;
use std::path::Path;
use support::*;

#[test]
fn all() {
    for dir in ["/tmp/p5h", "/tmp/rlh"] {
        let dir = Path::new(dir);
        for precision in [Precision::F32, Precision::Bf16] {
            let open = || Reference::open(dir, reference::Options::default()).unwrap();
            let load = |d: &Path| Port::load(d, precision).unwrap();
            let right = load(dir);
            if precision == Precision::Bf16 && dir.ends_with("p5h") { continue; }
            let feed = Feed::of(&right, precision, &[0, 4]);
            let (p, r) = (feed.rows(&right), feed.rows(&open()));
            let worst = |a: &Rows, b: &Rows| {
                let mut w = (0.0, None);
                for (k, x) in a.iter().filter(|((_, s), _)| *s != Site::ShadowChoice) {
                    let d = relative_l2(x, &b[k]);
                    if !(d <= w.0) { w = (d, Some(*k)); }
                }
                w
            };
            println!("{dir:?} {precision:?} honest {:?}", worst(&p, &r));
            for v in variants() {
                let w = match v.port {
                    Some(PortPlant::Steps { make, .. }) => worst(&feed.rows(&right.with_steps(make())), &p),
                    _ => worst(&feed.rows(&open().with_steps((v.reference().unwrap().make)())), &r),
                };
                println!("  rewrite {} {w:?} {}", v.id, w.0 <= if precision == Precision::F32 {1e-5} else {2e-2});
            }
            if precision == Precision::F32 {
                for m in catalogue().filter(|m| m.port.is_some() && m.reference().is_some()) {
                    let wrong = feed.rows(&open().with_steps((m.reference().unwrap().make)()));
                    let planted = match m.port.unwrap() {
                        PortPlant::Steps { make, .. } => feed.rows(&right.with_steps(make())),
                        PortPlant::Checkpoint(edits) => {
                            let t = tempfile::tempdir().unwrap();
                            let config = spec::config_file::read(dir).unwrap();
                            let facts = Facts { config: &config, idle: (LayerId(0), ExpertId(0)) };
                            apply(dir, &edits(&facts), t.path()).unwrap();
                            feed.rows(&load(t.path()))
                        }
                    };
                    println!("  bug {} twin {:?} right {:?}", m.id, worst(&planted, &wrong), worst(&r, &wrong));
                }
            }
        }
    }
}
