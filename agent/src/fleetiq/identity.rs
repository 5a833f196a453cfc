//! Which instance this is, in which group, in which region.
//!
//! The instance's metadata know best; the machine's firmware and the Node's provider id do where nobody answers. A Node's
//! name may be used again by another instance, and its provider id stays what it was: where they disagree, nothing is
//! called. What was seen is judged by pure functions; [`see`] alone looks.

use std::path::Path;

use berth_api::names;
use k8s_openapi::api::core::v1::Node;
use tracing::debug;

use crate::metadata::client::{Base, MetadataClient};

/// Where Nitro instances carry their id.
const ASSET_TAG: &str = "/sys/class/dmi/id/board_asset_tag";
/// What FleetIQ calls a group's Auto Scaling group, before the group's name.
const GROUP_PREFIX: &str = "gamelift-gameservergroup-";
/// Tag of the Auto Scaling group, where the instance's tags are in its metadata.
const GROUP_TAG: &str = "tags/instance/aws:autoscaling:groupName";
/// Letters of an instance id behind `i-`.
const ID_LETTERS: usize = 17;
/// Longest name of a group.
const LONGEST_GROUP: usize = 128;

/// An instance in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetIdentity {
    /// Its id.
    pub instance: String,
    /// The game server group.
    pub group: String,
    /// The region, where it is known by other means than the SDK's own.
    pub region: Option<String>,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sightings {
    /// The id, by the instance's metadata.
    pub metadata: Option<String>,
    /// The id, by the machine's firmware.
    pub asset_tag: Option<String>,
    /// The Node's `spec.providerID`.
    pub provider_id: Option<String>,
    /// The group, by the environment.
    pub given_group: Option<String>,
    /// The group, by the Node's label.
    pub labelled_group: Option<String>,
    /// The Auto Scaling group.
    pub scaling_group: Option<String>,
    /// The group in which a predecessor knew this instance: what the metadata told it may not be told now.
    pub marked_group: Option<String>,
    /// The region, by the instance's metadata.
    pub region: Option<String>,
}

/// Why it is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// Nobody knows the instance.
    #[error("no instance id: the metadata do not answer, and neither firmware nor spec.providerID has one")]
    NoInstance,
    /// Two that should agree do not.
    #[error("{one} says that this is {first}, and {other} that it is {second}")]
    Instances {
        /// Who.
        one: &'static str,
        /// What it says.
        first: String,
        /// Who else.
        other: &'static str,
        /// What that one says.
        second: String,
    },
    /// Nobody knows the group.
    #[error("no game server group: set GAME_SERVER_GROUP_NAME or the Node's label gamelift.status/group")]
    NoGroup,
    /// A group's name is none.
    #[error("{name:?} is no name of a game server group")]
    GroupName {
        /// The name.
        name: String,
    },
}

/// Looks at everything that may say who this is.
pub async fn see(node: &Node, given_group: Option<&str>, metadata: Option<&Base>) -> Sightings {
    let text = std::fs::read_to_string(Path::new(ASSET_TAG)).ok();
    let labels = node.metadata.labels.as_ref();
    let mut seen = Sightings {
        asset_tag: text.map(|text| text.trim().to_owned()),
        provider_id: node.spec.as_ref().and_then(|spec| spec.provider_id.clone()),
        given_group: given_group.map(str::to_owned),
        labelled_group: labels.and_then(|labels| labels.get(names::NODE_GROUP_LABEL)).cloned(),
        ..Sightings::default()
    };
    if let Some(base) = metadata {
        let mut client = MetadataClient::new(base.clone());
        // One that does not answer costs its time once.
        match client.get("instance-id").await {
            Ok(id) => {
                seen.metadata = id;
                seen.region = client.get("placement/region").await.ok().flatten();
                seen.scaling_group = client.get(GROUP_TAG).await.ok().flatten();
            }
            Err(error) => {
                debug!(error = %berth_runtime::error::chain(&error), "no identity from the metadata")
            }
        }
    }
    seen
}

impl Sightings {
    /// Who this is.
    ///
    /// # Errors
    /// It is not known, or not sure.
    pub fn identity(&self) -> Result<FleetIdentity, Unclear> {
        Ok(FleetIdentity { instance: self.instance()?, group: self.group()?, region: self.region() })
    }

    /// The instance.
    ///
    /// # Errors
    /// It is not known, or not sure.
    pub fn instance(&self) -> Result<String, Unclear> {
        let known = [
            ("the instance's metadata", self.metadata.as_deref().and_then(instance_id)),
            ("the machine's firmware", self.asset_tag.as_deref().and_then(instance_id)),
            (
                "spec.providerID",
                self.provider_id.as_deref().and_then(|id| id.rsplit('/').next()).and_then(instance_id),
            ),
        ];
        let mut known = known.into_iter().filter_map(|(who, id)| Some((who, id?)));
        let (one, first) = known.next().ok_or(Unclear::NoInstance)?;
        match known.find(|(_, id)| *id != first) {
            None => Ok(first.to_owned()),
            Some((other, second)) => {
                Err(Unclear::Instances { one, first: first.to_owned(), other, second: second.to_owned() })
            }
        }
    }

    /// The group: as given, else by the label, else by the Auto Scaling group, else as it was.
    ///
    /// # Errors
    /// It is not known.
    pub fn group(&self) -> Result<String, Unclear> {
        let said = [
            self.given_group.as_deref(),
            self.labelled_group.as_deref(),
            self.scaled_group(),
            self.marked_group.as_deref(),
        ];
        let name = said.into_iter().flatten().next().ok_or(Unclear::NoGroup)?;
        group_name(name).ok_or_else(|| Unclear::GroupName { name: name.to_owned() })
    }

    /// Where the group is said to be another one, as a sentence: the first that was said counts.
    #[must_use]
    pub fn other_group(&self) -> Option<String> {
        let group = self.group().ok()?;
        let others = [
            ("the Node's label", self.labelled_group.as_deref()),
            ("the Auto Scaling group", self.scaled_group()),
        ];
        let (who, other) = others
            .into_iter()
            .filter_map(|(who, name)| Some((who, group_name(name?)?)))
            .find(|(_, name)| *name != group)?;
        Some(format!("the game server group is taken to be {group}, and {who} says that it is {other}"))
    }

    /// Whether anything says that the instance is in a group.
    #[must_use]
    pub fn has_group(&self) -> bool {
        self.given_group.is_some()
            || self.labelled_group.is_some()
            || self.scaled_group().is_some()
            || self.marked_group.is_some()
    }

    fn scaled_group(&self) -> Option<&str> {
        self.scaling_group.as_deref().and_then(|name| name.trim().strip_prefix(GROUP_PREFIX))
    }

    /// The region, where it is known by other means than the SDK's own.
    #[must_use]
    pub fn region(&self) -> Option<String> {
        let told = self.region.as_deref().map(str::trim).filter(|region| !region.is_empty());
        told.map(str::to_owned).or_else(|| {
            // `aws:///eu-central-1a/i-…`
            let zone = self.provider_id.as_deref()?.strip_prefix("aws:///")?.split('/').next()?;
            let region = zone.strip_suffix(|letter: char| letter.is_ascii_lowercase())?;
            // A local zone has a longer name, and is left to the SDK.
            let is_region =
                region.ends_with(|letter: char| letter.is_ascii_digit()) && region.matches('-').count() <= 3;
            is_region.then(|| region.to_owned())
        })
    }
}

/// An instance id, if it is one.
fn instance_id(text: &str) -> Option<&str> {
    let text = text.trim();
    let letters = text.strip_prefix("i-")?;
    (letters.len() == ID_LETTERS && letters.chars().all(|letter| letter.is_ascii_alphanumeric()))
        .then_some(text)
}

/// A group's name, from a name or an ARN.
fn group_name(text: &str) -> Option<String> {
    let name = text.trim();
    let name = name.split_once(":gameservergroup/").map_or(name, |(_, name)| name);
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-.".contains(letter);
    (!name.is_empty() && name.len() <= LONGEST_GROUP && name.chars().all(allowed)).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{FleetIdentity, Sightings, Unclear};

    const ONE: &str = "i-0f3a9c2b7d1e45680";
    const TWO: &str = "i-0aaaaaaaaaaaaaaaa";

    fn some(text: &str) -> Option<String> {
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn seen(metadata: &str, asset_tag: &str, provider_id: &str) -> Sightings {
        Sightings {
            metadata: some(metadata),
            asset_tag: some(asset_tag),
            provider_id: some(provider_id),
            ..Sightings::default()
        }
    }

    #[test]
    fn the_instance_is_known_by_whoever_knows_it() {
        let provided = format!("aws:///eu-central-1a/{ONE}");
        let table = [
            (seen(ONE, "", ""), Some(ONE)),
            (seen("", ONE, ""), Some(ONE)),
            (seen("", "", &provided), Some(ONE)),
            (seen(ONE, ONE, &provided), Some(ONE)),
            (seen("", "Not Specified", &provided), Some(ONE)),
            (seen("", "", "kind://docker/kind/kind-worker"), None),
            (seen("i-12345678", "", ""), None),
            (seen("", "", ""), None),
        ];
        for (seen, expected) in table {
            assert_eq!(seen.instance().ok().as_deref(), expected, "{seen:?}");
        }
    }

    /// A Node's name that is used again keeps the provider id of the instance before.
    #[test]
    fn defect_18_a_provider_id_of_another_instance_is_a_disagreement() {
        let seen = seen(ONE, ONE, &format!("aws:///eu-central-1a/{TWO}"));
        let Err(unclear @ Unclear::Instances { .. }) = seen.instance() else { panic!("{seen:?}") };
        let words = unclear.to_string();
        assert!(words.contains(ONE) && words.contains(TWO) && words.contains("spec.providerID"), "{words}");
    }

    #[test]
    fn the_group_is_the_first_that_is_said() {
        let groups = |given: &str, labelled: &str, scaled: &str| Sightings {
            given_group: some(given),
            labelled_group: some(labelled),
            scaling_group: some(scaled),
            ..Sightings::default()
        };
        let arn = "arn:aws:gamelift:eu-central-1:111122223333:gameservergroup/pvp-eu";
        let marked = Sightings { marked_group: some("pvm"), ..Sightings::default() };
        let table = [
            (marked.clone(), Ok("pvm"), false),
            (Sightings { labelled_group: some("pve"), ..marked }, Ok("pve"), false),
            (groups("pvp", "pve", ""), Ok("pvp"), true),
            (groups("", "pve", "gamelift-gameservergroup-pvx"), Ok("pve"), true),
            (groups("", "", "gamelift-gameservergroup-pvx"), Ok("pvx"), false),
            (groups("pvx", "", "gamelift-gameservergroup-pvx"), Ok("pvx"), false),
            (groups(arn, "pvp-eu", ""), Ok("pvp-eu"), false),
            (groups("", "", "another-group"), Err(Unclear::NoGroup), false),
            (groups("", "", ""), Err(Unclear::NoGroup), false),
            (groups("a b", "", ""), Err(Unclear::GroupName { name: "a b".into() }), false),
        ];
        for (seen, expected, disagrees) in table {
            assert_eq!(seen.group(), expected.map(str::to_owned), "{seen:?}");
            assert_eq!(seen.other_group().is_some(), disagrees, "{seen:?}");
        }
    }

    #[test]
    fn the_region_is_that_of_the_metadata_or_of_the_zone() {
        let table = [
            ("", "aws:///eu-central-1a/i-1", Some("eu-central-1")),
            ("", "aws:///us-gov-west-1b/i-1", Some("us-gov-west-1")),
            ("", "aws:///us-west-2-lax-1a/i-1", None),
            ("", "gce://project/zone/name", None),
            ("", "", None),
            ("us-east-1", "aws:///eu-central-1a/i-1", Some("us-east-1")),
        ];
        for (region, provider_id, expected) in table {
            let seen = Sightings {
                region: some(region),
                provider_id: some(provider_id),
                metadata: some(ONE),
                given_group: some("pvp"),
                ..Sightings::default()
            };
            assert_eq!(seen.region().as_deref(), expected, "{provider_id}");
        }
        let seen = Sightings { metadata: some(ONE), given_group: some("pvp"), ..Sightings::default() };
        let identity = FleetIdentity { instance: ONE.into(), group: "pvp".into(), region: None };
        assert_eq!(seen.identity(), Ok(identity));
    }
}
