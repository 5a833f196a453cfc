//! What the author of a FleetAutoscaler may say. Each row has a bad one and, next to it, one that is almost the same and
//! good.

use serde_json::{Value, json};

/// One rule, from both sides: a spec, and what the refusal says.
pub(crate) type Row = (&'static str, Value, Vec<&'static str>, Value);

pub(crate) fn autoscaler(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "autoscaling.agones.dev/v1",
        "kind": "FleetAutoscaler",
        "metadata": { "name": name },
        "spec": spec,
    })
}

fn of_fleet(name: &str) -> Value {
    json!({ "fleetName": name, "policy": plain_buffer() })
}

fn policy(policy: Value) -> Value {
    json!({ "fleetName": "lobby", "policy": policy })
}

fn plain_buffer() -> Value {
    json!({ "type": "Buffer", "buffer": { "bufferSize": 5, "maxReplicas": 10 } })
}

fn buffer(size: Value, least: Value, most: Value) -> Value {
    let object = json!({ "bufferSize": size, "minReplicas": least, "maxReplicas": most });
    policy(json!({ "type": "Buffer", "buffer": object }))
}

fn counter(size: Value, least: Value, most: Value) -> Value {
    let object = json!({ "key": "rooms", "bufferSize": size, "minCapacity": least, "maxCapacity": most });
    policy(json!({ "type": "Counter", "counter": object }))
}

fn list(object: Value) -> Value {
    policy(json!({ "type": "List", "list": object }))
}

fn webhook(webhook: Value) -> Value {
    policy(json!({ "type": "Webhook", "webhook": webhook }))
}

fn service(service: Value) -> Value {
    webhook(json!({ "service": service }))
}

fn schedule(schedule: Value) -> Value {
    let mut whole = json!({ "policy": plain_buffer() });
    whole.as_object_mut().unwrap().extend(schedule.as_object().unwrap().clone());
    policy(json!({ "type": "Schedule", "schedule": whole }))
}

fn period(period: Value) -> Value {
    schedule(json!({ "activePeriod": period }))
}

fn cron(expression: &str) -> Value {
    period(json!({ "startCron": expression }))
}

fn chain(entries: Value) -> Value {
    policy(json!({ "type": "Chain", "chain": entries }))
}

fn entry(id: Option<&str>) -> Value {
    let mut entry = plain_buffer();
    if let Some(id) = id {
        entry["id"] = json!(id);
    }
    entry
}

fn wasm(wasm: Value) -> Value {
    let mut whole = json!({ "from": { "url": { "url": "https://modules.example/one" } } });
    whole.as_object_mut().unwrap().extend(wasm.as_object().unwrap().clone());
    policy(json!({ "type": "Wasm", "wasm": whole }))
}

fn sync(sync: Value) -> Value {
    json!({ "fleetName": "lobby", "policy": plain_buffer(), "sync": sync })
}

/// A good autoscaler, and what must be stored at each path.
pub(crate) fn good() -> Vec<(Value, Vec<(&'static str, Value)>)> {
    vec![
        (
            autoscaler("bare", of_fleet("lobby")),
            vec![
                ("/spec/sync/type", json!("FixedInterval")),
                ("/spec/sync/fixedInterval/seconds", json!(30)),
                ("/spec/policy/buffer/bufferSize", json!(5)),
                ("/status", Value::Null),
            ],
        ),
        (
            autoscaler("often", sync(json!({ "fixedInterval": { "seconds": 1 } }))),
            vec![("/spec/sync/type", json!("FixedInterval")), ("/spec/sync/fixedInterval/seconds", json!(1))],
        ),
        (
            autoscaler("module", wasm(json!({ "config": { "step": "2" }, "hash": "0a".repeat(32) }))),
            vec![
                ("/spec/policy/wasm/function", json!("scale")),
                ("/spec/policy/wasm/config/step", json!("2")),
            ],
        ),
        (
            autoscaler(
                "chained",
                chain(json!([
                    {
                        "id": "evenings",
                        "type": "Schedule",
                        "schedule": {
                            "between": {
                                "start": "2026-03-01T00:00:00-05:00",
                                "end": "2026-12-01T00:00:00Z",
                            },
                            "activePeriod": {
                                "timezone": "America/New_York",
                                "startCron": "0 18 * * MON-FRI",
                                "duration": "5h30m",
                            },
                            "policy": {
                                "type": "Webhook",
                                "webhook": { "service": { "namespace": "games", "name": "oracle" } },
                            },
                        },
                    },
                    { "type": "Buffer", "buffer": { "bufferSize": "20%", "minReplicas": 1, "maxReplicas": 9 } },
                ])),
            ),
            vec![
                ("/spec/policy/chain/0/schedule/activePeriod/startCron", json!("0 18 * * MON-FRI")),
                ("/spec/policy/chain/1/buffer/bufferSize", json!("20%")),
            ],
        ),
        // Taken as in `agones.dev`; its status says that it has no answer.
        (autoscaler("empty-chain", chain(json!([]))), vec![]),
        (autoscaler("no-chain", policy(json!({ "type": "Chain" }))), vec![]),
    ]
}

/// Every rule.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = limits();
    rows.extend(addresses());
    rows.extend(times());
    rows.extend(shapes());
    rows
}

fn limits() -> Vec<Row> {
    vec![
        (
            "a fleet name in capitals",
            of_fleet("Lobby"),
            vec!["spec.fleetName", "Lobby", "[a-z0-9]"],
            of_fleet("lobby.one-2"),
        ),
        ("no fleet name", of_fleet(""), vec!["spec.fleetName", "at least 1"], of_fleet("l")),
        (
            "a fleet name left out",
            json!({ "policy": plain_buffer() }),
            vec!["spec.fleetName", "Required"],
            of_fleet("lobby"),
        ),
        (
            "a fleet name that ends in a dash",
            of_fleet("lobby-"),
            vec!["spec.fleetName", "[a-z0-9]"],
            of_fleet("lobby-1"),
        ),
        (
            "a fleet name that no fleet can have",
            of_fleet(&"x".repeat(64)),
            vec!["spec.fleetName", "63"],
            of_fleet(&"x".repeat(63)),
        ),
        (
            "a buffer that has no maximum",
            policy(json!({ "type": "Buffer", "buffer": { "bufferSize": 5 } })),
            vec!["spec.policy.buffer.maxReplicas", "Required"],
            buffer(json!(5), json!(0), json!(5)),
        ),
        (
            "a buffer without a size",
            policy(json!({ "type": "Buffer", "buffer": { "maxReplicas": 5 } })),
            vec!["spec.policy.buffer.bufferSize", "Required"],
            buffer(json!(1), json!(0), json!(1)),
        ),
        (
            "a buffer of nothing",
            buffer(json!(0), json!(0), json!(5)),
            vec!["spec.policy.buffer.bufferSize", "greater than or equal to 1"],
            buffer(json!(1), json!(0), json!(5)),
        ),
        (
            "a buffer above its maximum",
            buffer(json!(6), json!(0), json!(5)),
            vec!["spec.policy.buffer.bufferSize", "must be no more than maxReplicas"],
            buffer(json!(5), json!(0), json!(5)),
        ),
        (
            "a minimum above the maximum",
            buffer(json!(2), json!(6), json!(5)),
            vec!["spec.policy.buffer.minReplicas", "must be no more than maxReplicas"],
            buffer(json!(2), json!(5), json!(5)),
        ),
        (
            "a minimum below the buffer",
            buffer(json!(3), json!(2), json!(5)),
            vec!["spec.policy.buffer.minReplicas", "must be 0 or at least bufferSize"],
            buffer(json!(3), json!(3), json!(5)),
        ),
        (
            "a minimum below zero",
            buffer(json!(3), json!(-1), json!(5)),
            vec!["spec.policy.buffer.minReplicas", "greater than or equal to 0"],
            buffer(json!(3), json!(0), json!(5)),
        ),
        (
            "a share without a minimum",
            buffer(json!("20%"), json!(0), json!(5)),
            vec!["spec.policy.buffer.minReplicas", "at least 1 where bufferSize is a percentage"],
            buffer(json!("20%"), json!(1), json!(5)),
        ),
        (
            "a share of all",
            buffer(json!("100%"), json!(1), json!(5)),
            vec!["spec.policy.buffer.bufferSize", "^[1-9][0-9]?%$"],
            buffer(json!("99%"), json!(1), json!(5)),
        ),
        (
            "a share of nothing",
            buffer(json!("0%"), json!(1), json!(5)),
            vec!["spec.policy.buffer.bufferSize", "^[1-9][0-9]?%$"],
            buffer(json!("1%"), json!(1), json!(5)),
        ),
        (
            "a share without its sign",
            buffer(json!("20"), json!(1), json!(5)),
            vec!["spec.policy.buffer.bufferSize", "^[1-9][0-9]?%$"],
            buffer(json!("20%"), json!(1), json!(5)),
        ),
        (
            "a counter without a name",
            policy(json!({ "type": "Counter", "counter": { "bufferSize": 1, "maxCapacity": 5 } })),
            vec!["spec.policy.counter.key", "Required"],
            counter(json!(1), json!(0), json!(5)),
        ),
        (
            "a counter above its capacity",
            counter(json!(6), json!(0), json!(5)),
            vec!["spec.policy.counter.bufferSize", "must be no more than maxCapacity"],
            counter(json!(5), json!(0), json!(5)),
        ),
        (
            "a counter that starts below its buffer",
            counter(json!(6), json!(5), json!(9)),
            vec!["spec.policy.counter.minCapacity", "must be 0 or at least bufferSize"],
            counter(json!(6), json!(6), json!(9)),
        ),
        (
            "a share of a counter without a minimum",
            counter(json!("5%"), json!(0), json!(5)),
            vec!["spec.policy.counter.minCapacity", "at least 1 where bufferSize is a percentage"],
            counter(json!("5%"), json!(1), json!(5)),
        ),
        (
            "a list without a maximum",
            list(json!({ "key": "players", "bufferSize": 1 })),
            vec!["spec.policy.list.maxCapacity", "Required"],
            list(json!({ "key": "players", "bufferSize": 1, "maxCapacity": 1 })),
        ),
        (
            "a list whose minimum is above its maximum",
            list(json!({ "key": "players", "bufferSize": 1, "minCapacity": 3, "maxCapacity": 2 })),
            vec!["spec.policy.list.minCapacity", "must be no more than maxCapacity"],
            list(json!({ "key": "players", "bufferSize": 1, "minCapacity": 2, "maxCapacity": 2 })),
        ),
    ]
}

fn addresses() -> Vec<Row> {
    let url = |text: &str| webhook(json!({ "url": text }));
    vec![
        (
            "a webhook nowhere",
            webhook(json!({})),
            vec!["spec.policy.webhook.url", "exactly one of url and service"],
            url("http://127.0.0.1:8000"),
        ),
        (
            "a webhook in two places",
            webhook(json!({ "url": "http://a.example", "service": { "namespace": "b", "name": "c" } })),
            vec!["spec.policy.webhook.url", "exactly one of url and service"],
            service(json!({ "namespace": "b", "name": "c" })),
        ),
        (
            "an address that is none",
            url("a.example/scale"),
            vec!["spec.policy.webhook.url", "http:// or https://"],
            url("https://a.example/scale"),
        ),
        (
            "an address for files",
            url("ftp://a.example/scale"),
            vec!["spec.policy.webhook.url", "http:// or https://"],
            url("https://a.example:1/scale?of=fleets"),
        ),
        (
            "a service without a name",
            service(json!({ "namespace": "b" })),
            vec!["spec.policy.webhook.service.name", "Required"],
            service(json!({ "namespace": "b", "name": "c", "path": "scale", "port": 65535 })),
        ),
        (
            "a service on no port",
            service(json!({ "namespace": "b", "name": "c", "port": 65536 })),
            vec!["spec.policy.webhook.service.port", "65535"],
            service(json!({ "namespace": "b", "name": "c", "port": 1 })),
        ),
        (
            "certificates that are no base64",
            webhook(json!({ "url": "https://a.example", "caBundle": "not base64!" })),
            vec!["spec.policy.webhook.caBundle", "byte"],
            webhook(json!({ "url": "https://a.example", "caBundle": "LS0tLS1CRUdJTg==" })),
        ),
        (
            "a module from nowhere",
            wasm(json!({ "from": { "url": {} } })),
            vec!["spec.policy.wasm.from.url.url", "exactly one of url and service"],
            wasm(json!({})),
        ),
        (
            "a module with a short hash",
            wasm(json!({ "hash": "0a" })),
            vec!["spec.policy.wasm.hash", "{64}"],
            wasm(json!({ "hash": "0A".repeat(32) })),
        ),
    ]
}

fn times() -> Vec<Row> {
    let between = |start: &str, end: &str| schedule(json!({ "between": { "start": start, "end": end } }));
    let lasting = |duration: &str| period(json!({ "startCron": "@daily", "duration": duration }));
    let five = "must be five fields";
    let path = "spec.policy.schedule.activePeriod.startCron";
    vec![
        (
            "an end before its start",
            between("2026-11-02T00:00:00Z", "2026-11-01T23:59:59Z"),
            vec!["spec.policy.schedule.between.end", "must not be before start"],
            between("2026-11-02T00:00:00Z", "2026-11-01T20:00:00-05:00"),
        ),
        (
            "a start that is no time",
            schedule(json!({ "between": { "start": "tomorrow" } })),
            vec!["spec.policy.schedule.between.start", "date-time"],
            schedule(json!({ "between": { "start": "2026-11-01T20:00:00-05:00" } })),
        ),
        (
            "a zone in words",
            period(json!({ "timezone": "New York" })),
            vec!["spec.policy.schedule.activePeriod.timezone", "[A-Za-z0-9_+/-]"],
            period(json!({ "timezone": "America/New_York" })),
        ),
        ("a cron of four fields", cron("0 14 * *"), vec![path, five], cron("0 14 * * *")),
        (
            "a cron of six fields",
            cron("0 0 14 * * *"),
            vec![path, five],
            cron("  */5,7 0-9/3 ? JAN-Mar sun  "),
        ),
        ("a minute that is none", cron("60 14 * * *"), vec![path, five], cron("59 23 31 12 6")),
        ("an hour that is none", cron("0 24 * * *"), vec![path, five], cron("0 0 1 1 0")),
        ("a day that is none", cron("0 0 0 * *"), vec![path, five], cron("@midnight")),
        ("a day of the week that is none", cron("0 0 * * 7"), vec![path, five], cron("0 0 * * 0")),
        ("a step of nothing", cron("*/0 * * * *"), vec![path, five], cron("*/15 * * * *")),
        (
            "a cron with a zone",
            cron("TZ=UTC 0 14 * * *"),
            vec![path, "the zone has a field of its own"],
            period(json!({ "startCron": "0 14 * * *", "timezone": "UTC" })),
        ),
        ("a cron of a name unknown", cron("@noon"), vec![path, "@daily"], cron("@daily")),
        (
            "a duration without a unit",
            lasting("90"),
            vec!["spec.policy.schedule.activePeriod.duration", "1h30m"],
            lasting("1.5h"),
        ),
        (
            "a duration of days",
            lasting("1d"),
            vec!["spec.policy.schedule.activePeriod.duration", "1h30m"],
            lasting("24h0m0.5s"),
        ),
        (
            "a schedule of nothing",
            policy(json!({ "type": "Schedule", "schedule": {} })),
            vec!["spec.policy.schedule.policy", "Required"],
            schedule(json!({})),
        ),
        (
            "a schedule with a bad policy",
            schedule(
                json!({ "policy": { "type": "Buffer", "buffer": { "bufferSize": 6, "maxReplicas": 5 } } }),
            ),
            vec!["spec.policy.schedule.policy.buffer.bufferSize", "no more than maxReplicas"],
            schedule(
                json!({ "policy": { "type": "Buffer", "buffer": { "bufferSize": 5, "maxReplicas": 5 } } }),
            ),
        ),
        (
            "a schedule of a schedule",
            schedule(json!({ "policy": { "type": "Schedule" } })),
            vec!["spec.policy.schedule.policy.type", "Buffer", "Webhook", "Counter", "List", "Wasm"],
            schedule(json!({ "policy": plain_buffer() })),
        ),
    ]
}

fn shapes() -> Vec<Row> {
    let missing = |kind: &str| policy(json!({ "type": kind, "schedule": { "policy": plain_buffer() } }));
    vec![
        ("no policy", json!({ "fleetName": "lobby" }), vec!["spec.policy", "Required"], of_fleet("lobby")),
        (
            "a policy of no kind",
            policy(json!({})),
            vec!["spec.policy.type", "Required"],
            policy(plain_buffer()),
        ),
        (
            "a policy of an unknown kind",
            policy(json!({ "type": "Random" })),
            vec!["spec.policy.type", "Buffer", "Webhook", "Counter", "List", "Schedule", "Chain", "Wasm"],
            policy(plain_buffer()),
        ),
        (
            "a kind without its object",
            missing("Counter"),
            vec!["spec.policy.counter", "required where type is Counter"],
            missing("Schedule"),
        ),
        (
            "two entries of a name",
            chain(json!([entry(Some("a")), entry(Some("a"))])),
            vec!["spec.policy.chain", "an id of its own"],
            chain(json!([entry(Some("a")), entry(Some("b"))])),
        ),
        (
            "two entries without a name",
            chain(json!([entry(None), entry(None)])),
            vec!["spec.policy.chain", "an id of its own"],
            chain(json!([entry(Some("a")), entry(None)])),
        ),
        (
            "an entry with a bad policy",
            chain(json!([entry(Some("a")), { "id": "b", "type": "List" }])),
            vec!["spec.policy.chain[1].list", "required where type is List"],
            chain(json!([entry(Some("b"))])),
        ),
        (
            "a chain in a chain",
            chain(json!([{ "id": "a", "type": "Chain" }])),
            vec!["spec.policy.chain[0].type", "Schedule", "Buffer"],
            chain(json!([entry(Some("a"))])),
        ),
        (
            "a chain without end",
            chain((0..65).map(|number| entry(Some(&number.to_string()))).collect()),
            vec!["spec.policy.chain", "64"],
            chain((0..64).map(|number| entry(Some(&number.to_string()))).collect()),
        ),
        (
            "no interval",
            sync(json!({ "type": "FixedInterval", "fixedInterval": { "seconds": 0 } })),
            vec!["spec.sync.fixedInterval.seconds", "greater than or equal to 1"],
            sync(json!({ "type": "FixedInterval" })),
        ),
        (
            "an unknown rhythm",
            sync(json!({ "type": "Cron" })),
            vec!["spec.sync.type", "FixedInterval"],
            sync(json!({})),
        ),
    ]
}
