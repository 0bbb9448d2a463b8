//! What a pass over a checkpoint holds. In a process of its own, because the system counts per process.
#![cfg(target_os = "linux")]

mod support;

use safetensors::Dtype;
use support::{TINY, folder, random_tensors, write_shard};

/// Memory behind mapped files, in bytes, as the system counts it now.
fn mapped() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssFile:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn mapped_pages_do_not_pile_up() {
    // embedding and head of 200,000 x 22 in F32: 17.6 MB each
    let config = TINY.replace("\"vocab_size\": 19", "\"vocab_size\": 200000");
    let dir = folder(&config);
    write_shard(dir.path(), "model.safetensors", &random_tensors(&config, Dtype::F32));
    let before = mapped();
    let most = std::sync::atomic::AtomicUsize::new(0);
    let note = |_| {
        most.fetch_max(mapped(), std::sync::atomic::Ordering::Relaxed);
    };
    let scan = reference::scan(dir.path(), &note).unwrap();
    let after = mapped();
    assert!(scan.bytes > 35_000_000, "{}", scan.bytes);
    let grown = most.into_inner() - before;
    assert!(grown > 10_000_000, "the count sees the file that is being read: {grown}");
    assert!(grown < 25_000_000, "no more than one of the two large tensors at a time: {grown}");
    assert!(after < before + 5_000_000, "{before} before, {after} after");
}
