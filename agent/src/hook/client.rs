//! The calls of [`Call`] over AWS's own SDK. Nothing is decided here, and no error leaves it unclassified.

use std::error::Error;
use std::time::Duration;

use aws_sdk_autoscaling::Client;
use aws_sdk_autoscaling::config::Builder;
use aws_sdk_autoscaling::config::http::HttpResponse;
use aws_sdk_autoscaling::config::retry::RetryConfig;
use aws_sdk_autoscaling::error::{ProvideErrorMetadata, SdkError};
use berth_runtime::error::chain;
use berth_runtime::kill_point::around;
use tracing::debug;

use super::HookName;
use super::call::{Answer, Call, Failure, Operation};
use crate::effects::Effect;
use crate::fleetiq::client::{failure_of, limits};

/// What a hook has to be asked for.
const TRANSITION: &str = "autoscaling:EC2_INSTANCE_TERMINATING";
/// A node that is empty may go; both answers end an instance that is on its way out.
const RESULT: &str = "CONTINUE";

/// Makes the calls of one instance and one hook.
#[derive(Clone, Debug)]
pub struct HookClient {
    client: Client,
    hook: HookName,
    instance: String,
}

impl HookClient {
    /// A client with limits on every call, from what says how AWS is reached.
    #[must_use]
    pub fn new(aws: Builder, hook: HookName, instance: String) -> Self {
        // A call is one attempt: the machine knows when the next is worth while.
        let config = aws.timeout_config(limits()).retry_config(RetryConfig::disabled()).build();
        Self { client: Client::from_conf(config), hook, instance }
    }

    /// The instance.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Makes a call, within twelve seconds.
    pub async fn call(&self, call: &Call) -> Answer {
        let effect = Effect::from(call.operation());
        match call {
            Call::FindGroup => Answer::FindGroup(around(effect, self.find_group()).await),
            Call::DescribeHook { group } => Answer::DescribeHook(around(effect, self.describe(group)).await),
            Call::Beat { group } => Answer::Beat(around(effect, self.beat(group)).await),
            Call::Complete { group } => Answer::Complete(around(effect, self.complete(group)).await),
        }
    }

    async fn find_group(&self) -> Result<Option<String>, Failure> {
        let describe = self.client.describe_auto_scaling_instances().instance_ids(&self.instance);
        let answer = describe.send().await.map_err(|error| failure(Operation::FindGroup, &error))?;
        let mut instances = answer.auto_scaling_instances.unwrap_or_default().into_iter();
        let ours = instances.find(|one| one.instance_id.as_deref() == Some(self.instance.as_str()));
        Ok(ours.and_then(|one| one.auto_scaling_group_name))
    }

    async fn describe(&self, group: &str) -> Result<Option<Duration>, Failure> {
        let describe = self.client.describe_lifecycle_hooks().auto_scaling_group_name(group);
        let answer = describe.lifecycle_hook_names(self.hook.as_str()).send().await;
        let answer = answer.map_err(|error| failure(Operation::DescribeHook, &error))?;
        let mut hooks = answer.lifecycle_hooks.unwrap_or_default().into_iter();
        let ours = hooks.find(|one| {
            one.lifecycle_hook_name.as_deref() == Some(self.hook.as_str())
                && one.lifecycle_transition.as_deref() == Some(TRANSITION)
        });
        let seconds = ours.map(|one| one.heartbeat_timeout.unwrap_or_default());
        Ok(seconds.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or_default())))
    }

    async fn beat(&self, group: &str) -> Result<(), Failure> {
        let beat = self.client.record_lifecycle_action_heartbeat().auto_scaling_group_name(group);
        let beat = beat.lifecycle_hook_name(self.hook.as_str()).instance_id(&self.instance);
        beat.send().await.map(drop).map_err(|error| failure(Operation::Beat, &error))
    }

    async fn complete(&self, group: &str) -> Result<(), Failure> {
        let complete = self.client.complete_lifecycle_action().auto_scaling_group_name(group);
        let complete = complete.lifecycle_hook_name(self.hook.as_str()).instance_id(&self.instance);
        let answer = complete.lifecycle_action_result(RESULT).send().await;
        answer.map(drop).map_err(|error| failure(Operation::Complete, &error))
    }
}

fn failure<E>(operation: Operation, error: &SdkError<E, HttpResponse>) -> Failure
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let failure = failure_of(error);
    debug!(operation = operation.name(), code = failure.word(), error = %chain(error), "Auto Scaling");
    failure
}
