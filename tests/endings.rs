//! How the program ends when somebody stops listening, or tells it to stop.

mod support;

use std::fs::OpenOptions;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::TRAINED;

fn inspect(stdout: Stdio) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(["inspect", TRAINED]);
    let output = command.stdout(stdout).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_reader_that_has_read_enough_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(inspect(writer.into()), (Some(0), String::new()));
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_behind_stdout_is_an_error_in_our_words() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (code, message) = inspect(full.into());
    assert_eq!(code, Some(2), "{message}");
    assert!(message.starts_with("assay: failed to write the result to standard output"), "{message}");
}

#[test]
fn a_signal_leaves_no_half_written_folder() {
    let folder = tempfile::tempdir().unwrap();
    let count = || std::fs::read_dir(folder.path()).unwrap().count();
    let out = folder.path().join("out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
    command.args(["make", "wide", "--seed", "1", "--layers", "1", "-o", out.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    while count() == 0 {
        assert!(Instant::now() < patience, "the folder is never begun");
        std::thread::sleep(Duration::from_millis(5));
    }
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(count(), 0);
}
