//! FleetAutoscaler's definition. Its rules between fields are the schema's own: nothing that Berth writes has this schema
//! but a status, and the lists are short enough for the API server to bound what a rule costs.
//!
//! What only a clock or a table of time zones can tell (an end that is over, a zone that is none) is taken, and told in
//! the status.

use serde_json::{Map, Value, json};

use super::{AGE, Names, Version, column, conditions, count64, integer};
use crate::fleet_autoscaler::PolicyKind;

/// Policies of a chain.
const MAX_CHAIN: i64 = 64;
/// Characters of an address.
const MAX_URL: i64 = 2048;
/// Characters of a name, a path or an expression.
const MAX_WORDS: i64 = 253;
/// Characters of what a module is configured with.
const MAX_TEXT: i64 = 4096;

pub(super) fn definition() -> Value {
    let names = Names {
        group: "autoscaling.agones.dev",
        kind: "FleetAutoscaler",
        plural: "fleetautoscalers",
        singular: "fleetautoscaler",
        short: &["fas"],
        scope: "Namespaced",
    };
    let name = json!({
        "type": "string",
        "minLength": 1,
        "maxLength": 63,
        "pattern": r"^[a-z0-9]([-\.a-z0-9]*[a-z0-9])?$",
    });
    let spec = json!({
        "type": "object",
        "required": ["fleetName", "policy"],
        "properties": { "fleetName": name, "policy": whole_policy(), "sync": sync() },
    });
    let text = json!({ "type": "string" });
    let schema = json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": text,
            "kind": text,
            "metadata": { "type": "object" },
            "spec": spec,
            "status": status(),
        },
    });
    let version = Version {
        schema,
        columns: vec![
            column("Fleet", "string", ".spec.fleetName"),
            column("Policy", "string", ".spec.policy.type"),
            column("Current", "integer", ".status.currentReplicas"),
            column("Desired", "integer", ".status.desiredReplicas"),
            column("Able", "boolean", ".status.ableToScale"),
            column("Limited", "boolean", ".status.scalingLimited"),
            AGE,
        ],
        subresources: json!({ "status": {} }),
        selectable: &[],
    };
    super::definition(&names, version)
}

fn sync() -> Value {
    let mut seconds = integer("int32", 1);
    seconds["default"] = json!(30);
    json!({
        "type": "object",
        "default": {},
        "properties": {
            "type": { "type": "string", "enum": ["FixedInterval"], "default": "FixedInterval" },
            "fixedInterval": { "type": "object", "default": {}, "properties": { "seconds": seconds } },
        },
    })
}

fn status() -> Value {
    let number = json!({ "type": "integer", "format": "int32" });
    json!({
        "type": "object",
        "properties": {
            "currentReplicas": number,
            "desiredReplicas": number,
            "lastScaleTime": { "type": "string", "format": "date-time", "nullable": true },
            "ableToScale": { "type": "boolean" },
            "scalingLimited": { "type": "boolean" },
            "lastAppliedPolicy": { "type": "string", "default": "" },
            "conditions": conditions(),
        },
    })
}

/// One rule of the schema: where it speaks, and what is allowed there.
fn rule(rule: &str, path: &str, message: &str) -> Value {
    json!({ "rule": rule, "fieldPath": path, "message": message, "reason": "FieldValueInvalid" })
}

/// What can be anywhere.
const PLAIN: [PolicyKind; 5] =
    [PolicyKind::Buffer, PolicyKind::Webhook, PolicyKind::Counter, PolicyKind::List, PolicyKind::Wasm];

/// The policy of an autoscaler: any.
fn whole_policy() -> Value {
    let entry = policy(&[&PLAIN[..], &[PolicyKind::Schedule]].concat(), |fields| {
        fields.insert("id".to_owned(), words());
    });
    let ids_differ = "self.filter(one, !has(one.id)).size() <= 1 \
         && self.all(one, !has(one.id) || self.exists_one(other, has(other.id) && other.id == one.id))";
    let chain = json!({
        "type": "array",
        "maxItems": MAX_CHAIN,
        "items": entry,
        "x-kubernetes-validations": [{
            "rule": ids_differ,
            "message": "each entry must have an id of its own (one of them may be left out)",
            "reason": "FieldValueInvalid",
        }],
    });
    policy(&PolicyKind::ALL, |fields| {
        fields.insert("chain".to_owned(), chain);
    })
}

/// A policy of one of these kinds, with the object of that kind.
fn policy(kinds: &[PolicyKind], more: impl FnOnce(&mut Map<String, Value>)) -> Value {
    let types: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    let mut fields = Map::new();
    fields.insert("type".to_owned(), json!({ "type": "string", "enum": types }));
    let mut rules = Vec::new();
    for kind in kinds {
        let (word, field) = (kind.as_str(), kind.field());
        let object = match kind {
            PolicyKind::Buffer => buffer(),
            PolicyKind::Webhook => webhook(),
            PolicyKind::Counter | PolicyKind::List => amount(),
            PolicyKind::Wasm => wasm(),
            PolicyKind::Schedule => schedule(),
            // An empty chain is taken, as in `agones.dev`, and has no answer.
            PolicyKind::Chain => continue,
        };
        fields.insert(field.to_owned(), object);
        rules.push(json!({
            "rule": format!("self.type != '{word}' || has(self.{field})"),
            "fieldPath": format!(".{field}"),
            "message": format!("required where type is {word}"),
            "reason": "FieldValueRequired",
        }));
    }
    more(&mut fields);
    json!({
        "type": "object",
        "required": ["type"],
        "properties": fields,
        "x-kubernetes-validations": rules,
    })
}

fn words() -> Value {
    json!({ "type": "string", "maxLength": MAX_WORDS })
}

/// A number from 1, or a percentage from 1 to 99.
fn buffer_size() -> Value {
    json!({ "x-kubernetes-int-or-string": true, "minimum": 1, "pattern": "^[1-9][0-9]?%$" })
}

/// Rules of a buffer between these two limits.
fn buffer_rules(least: &str, most: &str) -> Vec<Value> {
    let is_number = "type(self.bufferSize) == int";
    vec![
        rule(
            &format!("!has(self.{least}) || self.{least} <= self.{most}"),
            &format!(".{least}"),
            &format!("must be no more than {most}"),
        ),
        rule(
            &format!("!({is_number}) || int(self.bufferSize) <= self.{most}"),
            ".bufferSize",
            &format!("must be no more than {most}"),
        ),
        rule(
            &format!(
                "!({is_number}) || !has(self.{least}) || self.{least} == 0 || int(self.bufferSize) <= self.{least}"
            ),
            &format!(".{least}"),
            "must be 0 or at least bufferSize",
        ),
        rule(
            &format!("{is_number} || (has(self.{least}) && self.{least} >= 1)"),
            &format!(".{least}"),
            "must be at least 1 where bufferSize is a percentage",
        ),
    ]
}

fn buffer() -> Value {
    json!({
        "type": "object",
        "required": ["bufferSize", "maxReplicas"],
        "properties": {
            "bufferSize": buffer_size(),
            "minReplicas": integer("int32", 0),
            "maxReplicas": integer("int32", 1),
        },
        "x-kubernetes-validations": buffer_rules("minReplicas", "maxReplicas"),
    })
}

fn amount() -> Value {
    json!({
        "type": "object",
        "required": ["key", "bufferSize", "maxCapacity"],
        "properties": {
            "key": words(),
            "bufferSize": buffer_size(),
            "minCapacity": count64(),
            "maxCapacity": integer("int64", 1),
        },
        "x-kubernetes-validations": buffer_rules("minCapacity", "maxCapacity"),
    })
}

fn webhook() -> Value {
    let is_address = "self == '' || (isURL(self) && url(self).getScheme() in ['http', 'https'])";
    let one_of_two = "(has(self.url) && self.url != '') != has(self.service)";
    json!({
        "type": "object",
        "properties": {
            "url": {
                "type": "string",
                "maxLength": MAX_URL,
                "x-kubernetes-validations": [{
                    "rule": is_address,
                    "message": "must be a whole address that begins with http:// or https://",
                    "reason": "FieldValueInvalid",
                }],
            },
            "service": {
                "type": "object",
                "required": ["namespace", "name"],
                "properties": {
                    "namespace": words(),
                    "name": words(),
                    "path": { "type": "string", "maxLength": MAX_URL },
                    "port": { "type": "integer", "format": "int32", "minimum": 1, "maximum": 65535 },
                },
            },
            "caBundle": { "type": "string", "format": "byte" },
        },
        "x-kubernetes-validations": [rule(one_of_two, ".url", "exactly one of url and service is allowed")],
    })
}

fn wasm() -> Value {
    json!({
        "type": "object",
        "required": ["from"],
        "properties": {
            "function": { "type": "string", "maxLength": MAX_WORDS, "default": "scale" },
            "config": {
                "type": "object",
                "additionalProperties": { "type": "string", "maxLength": MAX_TEXT },
            },
            "from": { "type": "object", "required": ["url"], "properties": { "url": webhook() } },
            "hash": { "type": "string", "pattern": "^[0-9a-fA-F]{64}$" },
        },
    })
}

fn schedule() -> Value {
    let time = json!({ "type": "string", "format": "date-time" });
    let in_order = "!has(self.start) || !has(self.end) || self.start <= self.end";
    let is_cron = format!("self.matches(r'{}')", cron());
    let is_duration =
        r"self.matches(r'^(?:0|(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))*)$')";
    let checked = |rule: &str, message: &str| {
        json!({
            "type": "string",
            "maxLength": MAX_WORDS,
            "x-kubernetes-validations": [{ "rule": rule, "message": message, "reason": "FieldValueInvalid" }],
        })
    };
    json!({
        "type": "object",
        "required": ["policy"],
        "properties": {
            "between": {
                "type": "object",
                "properties": { "start": time, "end": time },
                "x-kubernetes-validations": [rule(in_order, ".end", "must not be before start")],
            },
            "activePeriod": {
                "type": "object",
                "properties": {
                    "timezone": {
                        "type": "string",
                        "maxLength": MAX_WORDS,
                        "pattern": "^[A-Za-z0-9_+/-]*$",
                    },
                    "startCron": checked(
                        &is_cron,
                        "must be five fields (minute, hour, day, month, day of the week from 0, Sunday, to 6), as in \
                         0 14 * * *, or @hourly, @daily, @weekly, @monthly or @yearly; the zone has a field of its own",
                    ),
                    "duration": checked(is_duration, "must be numbers with units from ns to h, as in 1h30m"),
                },
            },
            "policy": policy(&PLAIN, |_| {}),
        },
    })
}

/// What a cron expression looks like: each field has stars, numbers in its range or names, ranges of them, and steps.
fn cron() -> String {
    let field = |value: &str| {
        let one = format!(r"(?:[*?]|{value}(?:-{value})?)(?:/[1-9][0-9]?)?");
        format!("{one}(?:,{one})*")
    };
    let fields = [
        field("[0-5]?[0-9]"),
        field("(?:[01]?[0-9]|2[0-3])"),
        field("(?:0?[1-9]|[12][0-9]|3[01])"),
        field("(?:0?[1-9]|1[0-2]|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))"),
        field("(?:[0-6]|(?i:sun|mon|tue|wed|thu|fri|sat))"),
    ];
    let names = "@(?:yearly|annually|monthly|weekly|daily|midnight|hourly)";
    format!(r"^\s*(?:|{names}|{})\s*$", fields.join(r"\s+"))
}
