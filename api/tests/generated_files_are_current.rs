//! The checked-in CRDs are what the code says; `make generate` writes them.

use std::path::Path;

#[test]
fn the_checked_in_crds_are_what_the_code_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/crds");
    for crd in berth_api::crds::all() {
        let path = folder.join(crd.file);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let stored: serde_json::Value = serde_yaml_ng::from_str(&text).expect("YAML");
        assert!(stored == crd.definition, "{} is stale: run `make generate`", path.display());
    }
}
