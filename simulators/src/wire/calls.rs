//! The operations of the service: read from a message, carried out, and answered with one.

mod fields;
mod groups;

use std::str::FromStr as _;

use super::value::{Members, Value};
use crate::world::{
    Claim, CreateGroup, DeleteOption, Filter, GroupName, InstanceId, InstanceStatus, ListInstances,
    ListServers, Page, Paging, Refusal, RefusalKind, Register, Server, ServerId, SortOrder, Update,
    UpdateGroup, Utilization, World, known, readable,
};

use fields::Fields;

/// A call with everything that it asks for, checked.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Register(Register),
    Claim(Claim),
    Update(Update),
    Deregister { group: GroupName, server: ServerId },
    DescribeServer { group: GroupName, server: ServerId },
    DescribeInstances(ListInstances),
    ListServers(ListServers),
    DescribeGroup { group: GroupName },
    ListGroups(Paging),
    CreateGroup(CreateGroup),
    UpdateGroup(UpdateGroup),
    DeleteGroup { group: GroupName, how: DeleteOption },
    SuspendGroup { group: GroupName, suspended: bool },
}

/// The operations that there are.
pub(crate) const OPERATIONS: &[&str] = &[
    "RegisterGameServer",
    "ClaimGameServer",
    "UpdateGameServer",
    "DeregisterGameServer",
    "DescribeGameServer",
    "DescribeGameServerInstances",
    "ListGameServers",
    "DescribeGameServerGroup",
    "ListGameServerGroups",
    "CreateGameServerGroup",
    "UpdateGameServerGroup",
    "DeleteGameServerGroup",
    "SuspendGameServerGroup",
    "ResumeGameServerGroup",
];

/// Reads what an operation asks for.
pub(crate) fn read(operation: &str, message: &Value) -> Result<Call, Refusal> {
    let fields = Fields::of(message)?;
    let group = || fields.required("GameServerGroupName", GroupName::parse);
    let server = || fields.required("GameServerId", ServerId::parse);
    let data = || fields.optional("GameServerData", |text| readable("GameServerData", text, 1024));
    Ok(match operation {
        "RegisterGameServer" => Call::Register(Register {
            group: group()?,
            server: server()?,
            instance: fields.required("InstanceId", InstanceId::parse)?,
            connection: fields.optional("ConnectionInfo", |text| readable("ConnectionInfo", text, 512))?,
            data: data()?,
        }),
        "ClaimGameServer" => Call::Claim(Claim {
            group: group()?,
            server: fields.optional("GameServerId", ServerId::parse)?,
            data: data()?,
            filter: filter(&fields)?,
        }),
        "UpdateGameServer" => Call::Update(Update {
            group: group()?,
            server: server()?,
            data: data()?,
            utilization: fields
                .optional("UtilizationStatus", |text| known::<Utilization>("UtilizationStatus", text))?,
            is_healthy: fields.optional("HealthCheck", healthy)?.is_some(),
        }),
        "DeregisterGameServer" => Call::Deregister { group: group()?, server: server()? },
        "DescribeGameServer" => Call::DescribeServer { group: group()?, server: server()? },
        "DescribeGameServerInstances" => Call::DescribeInstances(ListInstances {
            group: group()?,
            ids: instance_ids(&fields)?,
            paging: fields.paging()?,
        }),
        "ListGameServers" => Call::ListServers(ListServers {
            group: group()?,
            order: fields.optional("SortOrder", |text| known::<SortOrder>("SortOrder", text))?,
            paging: fields.paging()?,
        }),
        "DescribeGameServerGroup" => Call::DescribeGroup { group: group()? },
        "ListGameServerGroups" => Call::ListGroups(fields.paging()?),
        "CreateGameServerGroup" => Call::CreateGroup(groups::read_create(&fields)?),
        "UpdateGameServerGroup" => Call::UpdateGroup(groups::read_update(&fields)?),
        "DeleteGameServerGroup" => Call::DeleteGroup {
            group: group()?,
            how: fields
                .optional("DeleteOption", |text| known("DeleteOption", text))?
                .unwrap_or(DeleteOption::Safe),
        },
        "SuspendGameServerGroup" | "ResumeGameServerGroup" => {
            groups::check_actions(&fields)?;
            Call::SuspendGroup { group: group()?, suspended: operation == "SuspendGameServerGroup" }
        }
        unknown => {
            let message = format!("there is no operation {unknown} here");
            return Err(Refusal::new(RefusalKind::UnknownOperation, message));
        }
    })
}

fn healthy(text: &str) -> Result<(), Refusal> {
    if text == "HEALTHY" { Ok(()) } else { Err(Refusal::invalid("HealthCheck knows no value but HEALTHY")) }
}

fn filter(fields: &Fields<'_>) -> Result<Option<Filter>, Refusal> {
    let Some(option) = fields.map("FilterOption")? else { return Ok(None) };
    let Some(statuses) = option.texts("InstanceStatuses")? else { return Ok(None) };
    let statuses = statuses
        .into_iter()
        .map(|text| known::<InstanceStatus>("InstanceStatuses", text))
        .collect::<Result<Vec<_>, _>>()?;
    if statuses.contains(&InstanceStatus::SpotTerminating) {
        return Err(Refusal::invalid("InstanceStatuses may hold ACTIVE and DRAINING"));
    }
    if !statuses.contains(&InstanceStatus::Active) {
        return Err(Refusal::invalid("InstanceStatuses must contain ACTIVE"));
    }
    Ok(Some(Filter { allows_draining: statuses.contains(&InstanceStatus::Draining) }))
}

fn instance_ids(fields: &Fields<'_>) -> Result<Vec<InstanceId>, Refusal> {
    let Some(ids) = fields.texts("InstanceIds")? else { return Ok(Vec::new()) };
    if !(1..=20).contains(&ids.len()) {
        return Err(Refusal::invalid("InstanceIds must have 1 to 20 ids"));
    }
    ids.into_iter().map(InstanceId::parse).collect()
}

impl Call {
    /// Carries the call out.
    pub(crate) fn perform(self, world: &mut World, by: &str) -> Result<Answer, Refusal> {
        let one_server = |world: &World, server: &Server| {
            Answer::Message(Members::new().with("GameServer", server_value(world, server)).into())
        };
        Ok(match self {
            Self::Register(call) => {
                let server = world.register(call)?;
                one_server(world, &server)
            }
            Self::Claim(call) => {
                let server = world.claim(call, by)?;
                one_server(world, &server)
            }
            Self::Update(call) => {
                let server = world.update(call)?;
                one_server(world, &server)
            }
            Self::DescribeServer { group, server } => {
                let server = world.describe_server(&group, &server)?;
                one_server(world, &server)
            }
            Self::Deregister { group, server } => {
                world.deregister(&group, &server)?;
                Answer::Nothing
            }
            Self::DescribeInstances(call) => {
                let page = world.list_instances(&call)?;
                let arn = world.group_arn(&call.group);
                let value = |(id, status): (InstanceId, InstanceStatus)| {
                    Members::new()
                        .with("GameServerGroupName", call.group.as_str())
                        .with("GameServerGroupArn", arn.as_str())
                        .with("InstanceId", id.as_str())
                        .with("InstanceStatus", status.as_str())
                        .into()
                };
                list("GameServerInstances", page, value)
            }
            Self::ListServers(call) => {
                let page = world.list_servers(&call)?;
                list("GameServers", page, |server| server_value(world, &server))
            }
            Self::ListGroups(paging) => {
                let page = world.list_groups(&paging)?;
                list("GameServerGroups", page, |group| groups::value(world, &group))
            }
            Self::DescribeGroup { group } => groups::answer(world, &world.describe_group(&group)?),
            Self::CreateGroup(call) => {
                let group = world.create_group(call)?;
                groups::answer(world, &group)
            }
            Self::UpdateGroup(call) => {
                let group = world.update_group(call)?;
                groups::answer(world, &group)
            }
            Self::DeleteGroup { group, how } => {
                let group = world.delete_group(&group, how)?;
                groups::answer(world, &group)
            }
            Self::SuspendGroup { group, suspended } => {
                let group = world.suspend_group(&group, suspended)?;
                groups::answer(world, &group)
            }
        })
    }
}

/// What a call is answered with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Message(Value),
    /// The operation has no output.
    Nothing,
}

fn list<T>(member: &str, page: Page<T>, value: impl Fn(T) -> Value) -> Answer {
    let items = page.items.into_iter().map(value).collect::<Vec<_>>();
    Answer::Message(Members::new().with(member, items).with_some("NextToken", page.next).into())
}

fn server_value(world: &World, server: &Server) -> Value {
    Members::new()
        .with("GameServerGroupName", server.group.as_str())
        .with("GameServerGroupArn", world.group_arn(&server.group))
        .with("GameServerId", server.id.as_str())
        .with("InstanceId", server.instance.as_str())
        .with_some("ConnectionInfo", server.connection.clone())
        .with_some("GameServerData", server.data.clone())
        .with_some("ClaimStatus", server.is_claimed(world.now()).then_some("CLAIMED"))
        .with("UtilizationStatus", server.utilization.as_str())
        .with("RegistrationTime", server.registered)
        .with_some("LastClaimTime", server.last_claim)
        .with("LastHealthCheckTime", server.last_health)
        .into()
}

/// A whole number that came as text, as weights do.
fn whole_number(field: &str, text: &str) -> Result<u32, Refusal> {
    u32::from_str(text)
        .ok()
        .filter(|number| (1..=999).contains(number))
        .ok_or_else(|| Refusal::invalid(format!("{field} must be a number from 1 to 999")))
}

#[cfg(test)]
mod tests;
