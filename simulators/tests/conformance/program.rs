//! The program itself: what it prints, what it refuses, how it ends.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_berth-simulator"));
    let ports =
        ["--aws-address", "127.0.0.1:0", "--imds-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0"];
    command.args(ports).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn it_says_where_it_is_and_stops_when_it_is_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    let path = authority.display().to_string();
    let arguments = ["--authority-file", &path, "--scenario", "happy", "--seed", "7", "--clock", "manual"];
    let mut program = Program(command(&arguments).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(program.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told = serde_json::from_str::<Value>(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
    assert!(told["aws"].as_str().unwrap().starts_with("https://127.0.0.1:"), "{told}");
    assert_eq!((told["seed"].as_u64(), told["region"].as_str()), (Some(7), Some("eu-central-1")));
    assert!(std::fs::read_to_string(&authority).unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
    let id = program.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(program.0.wait().unwrap().success());
}

#[test]
fn an_unknown_scenario_is_bad_configuration_that_names_the_others() {
    let output = command(&["--scenario", "nothing"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{told}");
    assert!(told.contains("drain-one") && told.contains("throttle-storm"), "{told}");
}

#[test]
fn help_says_what_a_client_needs() {
    let output = command(&["--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    for word in ["AWS_ENDPOINT_URL", "AWS_CA_BUNDLE", "--scenario", "--clock", "scaled:FACTOR"] {
        assert!(help.contains(word), "{word} is not in {help}");
    }
}
