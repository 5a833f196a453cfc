//! What scaling activities say of launches that failed. Pure.
//!
//! Auto Scaling has no codes for them, only sentences, some of which begin with EC2's code. What is not recognized is told
//! in its own words.

use super::Limit;

/// One scaling activity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// It launched an instance, or was to.
    pub is_launch: bool,
    /// How it ended.
    pub ending: ActivityEnding,
    /// What is said of it.
    pub message: String,
}

/// How an activity ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityEnding {
    /// It did what it was to.
    Successful,
    /// It did not.
    Failed,
    /// It has not ended, or somebody called it off.
    Other,
}

/// Phrases of a sentence, in small letters, and what each stands for.
const PHRASES: [(&str, Limit); 12] = [
    ("vcpulimitexceeded", Limit::VcpuQuota),
    ("vcpu capacity than your current vcpu limit", Limit::VcpuQuota),
    ("instancelimitexceeded", Limit::VcpuQuota),
    ("maxspotinstancecountexceeded", Limit::VcpuQuota),
    ("max spot instance count exceeded", Limit::VcpuQuota),
    ("insufficientfreeaddressesinsubnet", Limit::SubnetAddresses),
    ("free addresses in subnet", Limit::SubnetAddresses),
    ("insufficientinstancecapacity", Limit::InstanceCapacity),
    ("unfulfillablecapacity", Limit::InstanceCapacity),
    ("no spot capacity available", Limit::InstanceCapacity),
    ("do not have sufficient", Limit::InstanceCapacity),
    ("insufficient capacity", Limit::InstanceCapacity),
];

/// The limits that launches ran into since the last one that succeeded; each once, in the newest words.
#[must_use]
pub fn failures(activities: &[Activity]) -> Vec<(Limit, String)> {
    let mut found: Vec<(Limit, String)> = Vec::new();
    for activity in activities.iter().filter(|activity| activity.is_launch) {
        match activity.ending {
            ActivityEnding::Successful => break,
            ActivityEnding::Other => {}
            ActivityEnding::Failed => {
                let limit = limit(&activity.message);
                if found.iter().all(|(known, _)| *known != limit) {
                    found.push((limit, format!("{}: {}", advice(limit), activity.message)));
                }
            }
        }
    }
    found
}

fn limit(message: &str) -> Limit {
    let message = message.to_lowercase();
    let known = PHRASES.iter().find(|(phrase, _)| message.contains(phrase));
    known.map_or(Limit::LaunchFailed, |(_, limit)| *limit)
}

fn advice(limit: Limit) -> &'static str {
    match limit {
        Limit::VcpuQuota => "the account's quota of vCPUs is used up; ask AWS for more",
        Limit::SubnetAddresses => {
            "a subnet has no free addresses; give the Auto Scaling group larger or more subnets"
        }
        Limit::InstanceCapacity => "EC2 has no such instances now; name more instance types or zones",
        _ => "a launch failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(ending: ActivityEnding, message: &str) -> Activity {
        Activity { is_launch: true, ending, message: message.to_owned() }
    }

    fn failed(message: &str) -> Activity {
        activity(ActivityEnding::Failed, message)
    }

    fn limits(activities: &[Activity]) -> Vec<Limit> {
        failures(activities).into_iter().map(|(limit, _)| limit).collect()
    }

    #[test]
    fn sentences_of_aws_are_recognized() {
        for (message, expected) in [
            (
                "You have requested more vCPU capacity than your current vCPU limit of 32 allows for the instance bucket \
                 that the specified instance type belongs to. Launching EC2 instance failed.",
                Limit::VcpuQuota,
            ),
            (
                "Could not launch Spot Instances. VcpuLimitExceeded - You have requested more",
                Limit::VcpuQuota,
            ),
            ("Max spot instance count exceeded. Launching EC2 instance failed.", Limit::VcpuQuota),
            (
                "There are not enough free addresses in subnet 'subnet-0a1b' to satisfy the requested number of \
                 instances. Launching EC2 instance failed.",
                Limit::SubnetAddresses,
            ),
            ("InsufficientFreeAddressesInSubnet - There are", Limit::SubnetAddresses),
            (
                "We currently do not have sufficient c6i.large capacity in the Availability Zone you requested \
                 (eu-central-1a). Launching EC2 instance failed.",
                Limit::InstanceCapacity,
            ),
            ("Could not launch Spot Instances. UnfulfillableCapacity - Unable to", Limit::InstanceCapacity),
            ("The requested configuration is currently not supported.", Limit::LaunchFailed),
        ] {
            assert_eq!(limits(&[failed(message)]), [expected], "{message}");
        }
    }

    #[test]
    fn only_failures_since_the_last_launch_count_each_once() {
        let quota = || failed("VcpuLimitExceeded");
        let subnet = || failed("InsufficientFreeAddressesInSubnet");
        let launched = || activity(ActivityEnding::Successful, "");
        let ended = || Activity { is_launch: false, ..launched() };
        let waiting = || activity(ActivityEnding::Other, "VcpuLimitExceeded");
        assert_eq!(limits(&[quota(), subnet(), quota()]), [Limit::VcpuQuota, Limit::SubnetAddresses]);
        assert_eq!(limits(&[launched(), quota()]), []);
        assert_eq!(limits(&[waiting(), ended(), quota(), launched(), subnet()]), [Limit::VcpuQuota]);
        assert_eq!(limits(&[]), []);
    }
}
