//! Sites that are not there for every layer and case of a side, or that a trace cannot have, are refused.

use super::fake::{Fake, cases};
use diff::trace::{DEFAULT_SITES, SitesFile, compare};
use rstest::rstest;
use safetensors::tensor::{Dtype, TensorView};
use spec::trace::Trace;
use spec::{Error, Routing, Site};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn recorded(folder: &Path, name: &str, sites: &[Site]) -> PathBuf {
    let out = folder.join(name);
    Fake::reference().record_sites(&cases(&["a", "b"]), Routing::Free, sites, &out).unwrap();
    out
}

/// Writes a sites file again, by the safetensors crate alone, with other tensors of zeros.
fn rewrite(path: &Path, change: impl FnOnce(&mut BTreeMap<String, Vec<usize>>)) {
    let bytes = std::fs::read(path).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let shapes = header.tensors().into_iter().map(|(name, info)| (name, info.shape.clone()));
    let mut shapes: BTreeMap<String, Vec<usize>> = shapes.collect();
    change(&mut shapes);
    let zeros = vec![0; 4096];
    let view = |shape: &Vec<usize>| {
        let length = shape.iter().product::<usize>() * 4;
        TensorView::new(Dtype::F32, shape.clone(), &zeros[..length]).unwrap()
    };
    let views: Vec<_> = shapes.iter().map(|(name, shape)| (name, view(shape))).collect();
    std::fs::write(path, safetensors::serialize(views, header.metadata().clone()).unwrap()).unwrap();
}

fn unpaired(left: &Path, right: &Path, said: &[&str]) {
    let error = compare(left, right, None, &mut ()).unwrap_err();
    assert!(matches!(error, Error::Unpaired { .. }), "{error}");
    for said in said {
        assert!(error.to_string().contains(said), "{said}: {error}");
    }
}

#[rstest]
#[case::of_the_first_layer(
    "a",
    "attn_branch.0",
    "`attn_branch` of layer 0 of case `a`, as of layer 1 of case `a`"
)]
#[case::of_the_last_layer(
    "a",
    "moe_branch.1",
    "`moe_branch` of layer 1 of case `a`, as of layer 0 of case `a`"
)]
#[case::of_the_last_case("b", "router_logits.1", "`router_logits` of layer 1 of case `b`, as of layer 0")]
#[case::of_no_layer("b", "logits", "`logits` of case `b`, as of case `a`")]
fn a_site_that_is_missing_here_and_there_is_refused(
    #[case] case: &str,
    #[case] tensor: &str,
    #[case] said: &str,
    #[values(false, true)] of_the_reference: bool,
) {
    let folder = tempfile::tempdir().unwrap();
    let partial = recorded(folder.path(), "partial", &DEFAULT_SITES);
    let whole = recorded(folder.path(), "whole", &DEFAULT_SITES);
    let file = format!("{case}.sites.safetensors");
    rewrite(&partial.join(&file), |shapes| assert!(shapes.remove(tensor).is_some()));
    let said = [said, &format!("none in {}", partial.join(&file).display()), "record that side again"];
    match of_the_reference {
        true => unpaired(&partial, &whole, &said),
        false => unpaired(&whole, &partial, &said),
    }
    unpaired(&partial, &partial, &said[..1]);
}

#[test]
fn a_case_without_its_sites_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let whole = recorded(folder.path(), "whole", &DEFAULT_SITES);
    let partial = recorded(folder.path(), "partial", &DEFAULT_SITES);
    std::fs::remove_file(partial.join("b.sites.safetensors")).unwrap();
    unpaired(&whole, &partial, &["of case `b`", "a sites file beside", "partial/b.trace.safetensors"]);
}

#[test]
fn a_case_without_its_routing_weights_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let whole = recorded(folder.path(), "whole", &DEFAULT_SITES);
    let partial = recorded(folder.path(), "partial", &DEFAULT_SITES);
    let path = partial.join("b.trace.safetensors");
    let mut trace = Trace::read(&path).unwrap();
    trace.weights = None;
    trace.write(&path).unwrap();
    unpaired(&whole, &partial, &["`topk_weights` of case `b`, as of case `a`"]);
}

#[test]
fn a_site_that_one_side_kept_nowhere_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let whole = recorded(folder.path(), "whole", &DEFAULT_SITES);
    let few = recorded(folder.path(), "few", &[Site::AttnBranch]);
    for (left, right) in [(&whole, &few), (&few, &whole)] {
        let found = compare(left, right, None, &mut ()).unwrap();
        let layer = &found.layers[1];
        assert_eq!(layer.attn_branch.as_ref().unwrap().count, 6);
        assert!(layer.moe_branch.is_none() && layer.router_sigma.is_none() && found.end_to_end.is_none());
    }
}

#[rstest]
#[case::a_layer_beyond_the_last("attn_branch.2", &[3, 2], "2 layers, found a tensor `attn_branch.2`")]
#[case::an_unknown_site("attention.0", &[3, 2], "found a tensor `attention.0`")]
#[case::another_spelling("attn_branch.00", &[3, 2], "found a tensor `attn_branch.00`")]
#[case::a_layer_of_a_site_of_none("logits.0", &[3, 3], "found a tensor `logits.0`")]
#[case::no_layer("attn_branch", &[3, 2], "found a tensor `attn_branch`")]
#[case::control_characters("\u{1b}[31m", &[3, 2], "found a tensor `\\u{1b}[31m`")]
#[case::logits_of_fewer_experts("router_logits.0", &[3, 4], "`router_logits.0` of shape [3, 5]")]
#[case::scores_of_more_experts("selection_scores.1", &[3, 6], "`selection_scores.1` of shape [3, 5]")]
#[case::weights_of_another_k("topk_weights.0", &[3, 3], "`topk_weights.0` of shape [3, 2]")]
#[case::rows_of_nothing("attn_branch.0", &[3, 0], "`attn_branch.0` of shape [3, width], found [3, 0]")]
#[case::too_few_rows("attn_branch.0", &[2, 2], "`attn_branch.0` of shape [3, width], found [2, 2]")]
fn a_tensor_that_is_no_site_of_the_trace_is_refused(
    #[case] tensor: &str,
    #[case] shape: &[usize],
    #[case] said: &str,
) {
    let folder = tempfile::tempdir().unwrap();
    let out = recorded(folder.path(), "out", &DEFAULT_SITES);
    let (trace, path) = (out.join("a.trace.safetensors"), out.join("a.sites.safetensors"));
    let trace = Trace::read(&trace).unwrap();
    rewrite(&path, |_| ());
    assert!(SitesFile::open(&path, &trace).is_ok());
    rewrite(&path, |shapes| drop(shapes.insert(tensor.into(), shape.into())));
    let error = SitesFile::open(&path, &trace).unwrap_err();
    assert!(matches!(error, Error::Trace { .. }) && error.to_string().contains(said), "{error}");
}
