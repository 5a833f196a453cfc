//! The CustomResourceDefinitions of Berth's resources, as files.

/// One generated file.
#[derive(Clone, Debug)]
pub struct CrdFile {
    /// Name of the file.
    pub name: String,
    /// Its whole text.
    pub text: String,
}

/// Every file of `manifests/crds/`.
pub fn files() -> Vec<CrdFile> {
    Vec::new()
}
