//! What rules can say, and what is said of those that are wrong.

use super::*;

#[test]
fn all_that_a_rule_can_say() {
    let text = r#"
            # comments
            rule stuck { worker of "nginx" spins 3ms without progress -> keep evidence, restart kill }
            rule exact { process of "app" spins exactly 200us without progress-> log at most 5 in 1m }
            rule dead { process of "app" waits in a cycle -> run "logger dead", signal SIGTERM }
            rule asleep { worker of "nginx" sleeps 5ms while it holds bytes -> log }
            rule beat { scalar "web.ticks" of process of "web" still for 4ms -> signal USR1 }
            rule told { process of "web" waits in a cycle -> webhook "http://[::1]:9000/a?b=c", log }
            rule path { process of "web" waits in a cycle -> set "put.path" to -2 for 10s, set "a" to 1 }
            rule late { process of "web" waits in a cycle -> locate, locate over 5s, tune, tune by "cat n", log }
            rule alone { process of "node" spins 3ms without progress -> keep evidence, restart replace }
        "#;
    let rules = parse("web.rules", text).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(rules.len(), 9);
    let ms = Duration::from_millis;
    assert_eq!(rules[0].condition, Condition::Spins { least: ms(3), exactly: false });
    assert_eq!(rules[0].actions, [Action::KeepEvidence, Action::RestartKill]);
    assert_eq!(rules[0].budget, Budget::default());
    assert_eq!(rules[1].budget, Budget { times: 5, within: Duration::from_secs(60) });
    assert_eq!(rules[2].condition, Condition::WaitsInCycle);
    assert_eq!(rules[3].condition, Condition::SleepsOnBytes { least: ms(5) });
    assert_eq!(rules[4].target, Target::Processes("web".to_owned()));
    let url = "http://[::1]:9000/a?b=c".parse().unwrap();
    assert_eq!(rules[5].actions, [Action::Webhook(url), Action::Log]);
    let set = |knob: &str, value, hold| Action::Set { knob: knob.to_owned(), value, hold };
    let hold = Some(Duration::from_secs(10));
    assert_eq!(rules[6].actions, [set("put.path", -2, hold), set("a", 1, None)]);
    let locate = |ms| Action::Locate { over: Duration::from_millis(ms) };
    let tune = |work: Option<&str>| Action::Tune { work: work.map(str::to_owned) };
    let late = [locate(2000), locate(5000), tune(None), tune(Some("cat n")), Action::Log];
    assert_eq!(rules[7].actions, late);
    assert_eq!(rules[8].actions, [Action::KeepEvidence, Action::RestartReplace]);
}

#[test]
fn conditions_over_windows() {
    let text = r#"
            rule slow { p99.9 of histogram "web.time" of process of "web" > 20ms over 1s for 3 windows until 5ms -> log }
            rule high { p50 of histogram "web.size" of worker of "web" > 4096 over 100ms -> log }
            rule bad { share of "web.bad" in "web.all" of process of "web" > 0.5% over 5s for 1 window -> log }
        "#;
    let rules = parse("r", text).unwrap_or_else(|report| panic!("{report}"));
    let of_requests = r#"
            rule late { p99 of requests "GET /cart*" of process of "web" > 20ms over 1s for 3 windows -> log }
            rule bad { share of failed requests "*" of worker of "web" > 2% over 5s until 1% -> log }
        "#;
    let late = parse("r", of_requests).unwrap_or_else(|report| panic!("{report}"));
    assert!(late.iter().all(Rule::needs_requests) && !rules.iter().any(Rule::needs_requests));
    let Condition::Above(Windows { measure, limit, windows: 3, .. }) = &late[0].condition else {
        panic!("{late:?}")
    };
    let pattern = "GET /cart*".to_owned();
    assert_eq!((measure, limit), (&Measure::Requests { pattern, share: 990_000 }, &20_000_000));
    let Condition::Above(Windows { measure, limit, until, .. }) = &late[1].condition else {
        panic!("{late:?}")
    };
    assert_eq!(measure, &Measure::Failures { pattern: "*".to_owned() });
    assert_eq!((*limit, *until), (20_000, 10_000));
    let quantile = |histogram: &str, share| {
        let histogram = histogram.to_owned();
        Measure::Quantile { histogram, share }
    };
    let ms = Duration::from_millis;
    let slow = Windows {
        measure: quantile("web.time", 999_000),
        limit: 20_000_000,
        until: 5_000_000,
        over: ms(1000),
        windows: 3,
    };
    assert_eq!(rules[0].condition, Condition::Above(slow));
    let measure = quantile("web.size", 500_000);
    let high = Windows { measure, limit: 4096, until: 4096, over: ms(100), windows: 1 };
    assert_eq!(rules[1].condition, Condition::Above(high));
    assert_eq!(rules[1].target, Target::Workers("web".to_owned()));
    let measure = Measure::Share { part: "web.bad".to_owned(), whole: "web.all".to_owned() };
    let bad = Windows { measure, limit: 5000, until: 5000, over: ms(5000), windows: 1 };
    assert_eq!(rules[2].condition, Condition::Above(bad));
    for (condition, why) in [
        ("p0 of histogram \"a\" of process of \"b\" > 1 over 1s", "`worker` or `process`"),
        ("p99 of histogram \"a\" of process of \"b\" > 2% over 1s", "a number of what"),
        ("p99 of histogram \"a\" of process of \"b\" > 1 over 1s for 0 windows", "no 0 windows"),
        ("p99 of histogram \"a\" of process of \"b\" > 1 over 1s until 2", "falls below"),
        ("p99 of request \"a\" of process of \"b\" > 1 over 1s", "did you mean `requests`"),
        ("p99 of requests \"a\" of process of \"b\" > 1 over 5ms", "take 500ms at least"),
        ("share of failed requests \"a\" of process of \"b\" > 1 over 5s", "a percentage"),
        ("share of \"a\" in \"b\" of process of \"c\" > 2 over 1s", "a percentage"),
        ("share of \"a\" in \"b\" of process of \"c\" > 200% over 1s", "nor a percentage"),
    ] {
        let said = parse("r", &format!("rule a {{ {condition} -> log }}")).unwrap_err();
        assert!(said.to_string().contains(why), "{condition}: {said}");
    }
}

#[test]
fn urls_that_cannot_be_sent_to_are_refused_with_their_place() {
    let said = |url: &str| {
        let text = format!("rule a {{\n process of \"x\" waits in a cycle -> webhook {url} }}");
        parse("r", &text).unwrap_err().to_string()
    };
    for (url, why) in [
        ("\"https://example.org/\"", "cannot speak https"),
        ("\"example.org\"", "begins with http://"),
        ("\"http://a:0/\"", "from 1 to 65535"),
        ("http", "a URL in quotes"),
    ] {
        let said = said(url);
        assert!(said.contains("r:2:45") && said.contains(why), "{said}");
    }
    assert!(said("\"https://example.org/\"").contains("relay"));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let text = "rule a { worker of \"x\" spinns 3ms without progress -> log }\n\
                    rule b { worker of \"x\" spins 3 without progress -> log }\n\
                    rule c { process of \"x\" waits in a cycle -> signal NOPE }\n\
                    rule d { process of \"x\" waits in a cycle -> log }\n\
                    rule d { process of \"x\" waits in a cycle -> log }";
    let said = parse("r", text).unwrap_err().to_string();
    for part in ["r:1:24", "did you mean `spins`", "r:2:", "a time such as 3ms", "r:3:", "r:5:1"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let text = "rule a { process of \"x\" waits in a cycle -> set \"put/path\" to 1 }\n\
                    rule b { process of \"x\" waits in a cycle -> set \"put\" to 1.5 }\n\
                    rule c { process of \"x\" waits in a cycle -> set \"put\" to 1s }\n\
                    rule d { process of \"x\" waits in a cycle -> set \"put\" to 1 for 3 }";
    let said = parse("r", text).unwrap_err().to_string();
    for part in ["r:1:49", "no knob's name", "r:2:58", "r:3:58", "a whole number", "r:4:64"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let text = "rule a { process of \"x\" waits in a cycle -> tunes }\n\
                    rule b { process of \"x\" waits in a cycle -> tune by 3 }\n\
                    rule c { process of \"x\" waits in a cycle -> locate over 2 }\n\
                    rule d { process of \"x\" waits in a cycle -> locate over 2m }";
    let said = parse("r", text).unwrap_err().to_string();
    for part in ["r:1:45", "mean `tune`", "r:2:53", "a command in quotes", "r:3:57", "a time such"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(said.contains("r:4:57") && said.contains("60s at most"), "{said}");
    let long = "a".repeat(65);
    let text = format!(
        "rule a {{ worker of \"x\" spins 3ms without progress -> log, restart replace }}\n\
         rule b {{ process of \"/bin/x\" waits in a cycle -> log }}\n\
         rule {long} {{ process of \"x\" waits in a cycle -> log }}"
    );
    let said = parse("r", &text).unwrap_err().to_string();
    for part in ["r:1:59", "no spares", "r:2:21", "goes by that name", "r:3:6", "64 bytes"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let text = "rule a { process of \"x\" waits in a cycle -> run \" \" }\n\
                    rule b { process of \"x\" waits in a cycle -> tune by \"\" }\n\
                    rule c { scalar \"a b\" of process of \"x\" still for 3s -> log }";
    let said = parse("r", text).unwrap_err().to_string();
    for part in ["r:1:49", "no command", "r:2:53", "r:3:17", "no sensor's name"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(parse("r", "").unwrap_err().to_string().contains("there is no rule"));
}

#[test]
fn any_text_has_an_answer() {
    let text =
        "rule a { scalar \"é\" of worker of \"x\" still for 1.5s -> run \"\u{1f600}\" } ->-\"";
    let ends = text.char_indices().map(|(at, _)| at);
    for end in ends {
        let _ = parse("r", &text[..end]);
        let _ = parse("r", &text[end..]);
    }
}
