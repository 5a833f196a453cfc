//! The checked-in CRDs are what the code says; `make generate` writes them.

use std::path::Path;

use berth_api::crds::{Crd, all, open};

fn assert_current(folder: &str, crds: &[Crd]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests").join(folder);
    for crd in crds {
        let path = folder.join(crd.file);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let stored: serde_json::Value = serde_yaml_ng::from_str(&text).expect("YAML");
        assert!(stored == crd.definition, "{} is stale: run `make generate`", path.display());
    }
}

#[test]
fn the_checked_in_crds_are_what_the_code_says() {
    assert_current("crds", &all());
}

#[test]
fn so_are_those_with_an_open_pod_template() {
    assert_current("crds-open", &open());
}
