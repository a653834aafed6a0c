//! `fettle census` on a small tree of C and on a repository with two commits.

use std::path::Path;
use std::process::{Command, Output};

const QUEUE: &str = "\
#include <linux/spinlock.h>
/* spin_lock(&never) */
static const char *text = \"spin_lock(&never)\";
int queue_add(struct queue *q, int n)
{
	spin_lock(&q->lock);
	if (n > q->room) {
		spin_unlock(&q->lock);
		return -1;
	}
	mutex_lock(&q->owner);
	q->room -= n;
#ifdef CONFIG_SMP
	smp_mb();
	wake_others(q);
#endif
	mutex_unlock(&q->owner);
	spin_unlock(&q->lock);
	return 0;
}
#if 0
void dead(void) { spin_lock(&never); }
#endif
";

fn fettle(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
    command.arg("census").args(arguments).current_dir(folder);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"))
}

fn git(folder: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"];
    let mut command = Command::new("git");
    command.args(identity).args(arguments).current_dir(folder);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = command.output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {output:?}");
}

fn tree() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("core")).unwrap();
    std::fs::write(folder.path().join("core/queue.c"), QUEUE).unwrap();
    std::fs::write(folder.path().join("main.c"), "int main(void) { lock_kernel(); }\n").unwrap();
    folder
}

#[test]
fn a_folder_is_counted() {
    let folder = tree();
    let output = fettle(folder.path(), &[".", "--smp", "--sites", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let found = json(&output);
    let source = &found["sources"][0];
    let spin = &source["kinds"]["spinlock"];
    assert_eq!((spin["lock"].as_u64(), spin["unlock"].as_u64()), (Some(1), Some(2)));
    assert_eq!(source["kinds"]["mutex"]["lock"], 1);
    assert_eq!(source["held_after_acquisition"][1], 1, "{source}");
    assert_eq!(source["builds"]["lines"]["new"], 2);
    assert_eq!(source["builds"]["files_that_differ"], 1);
    assert_eq!(source["subsystems"].as_array().unwrap().len(), 2);
    assert_eq!(source["candidates"][0]["number"], 1);
    let lines: Vec<_> = source["sites"].as_array().unwrap().iter().map(|s| &s["line"]).collect();
    assert_eq!(lines, [6, 8, 11, 17, 18, 1]);

    let output = fettle(folder.path(), &[".", "--candidates", "--only", "main.c"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("always  giant   in main main.c"), "{text}");
    assert!(!text.contains("queue"), "{text}");
}

#[test]
fn kinds_of_ones_own_and_what_is_wrong_with_them() {
    let folder = tree();
    let kinds = "set mine\nlanguages c\nkind barrier\n  other smp_mb\n";
    std::fs::write(folder.path().join("mine.kinds"), kinds).unwrap();
    let found = json(&fettle(folder.path(), &[".", "--kinds", "mine.kinds", "--json"]));
    assert_eq!(found["sources"][0]["kinds"]["barrier"]["other"], 1);
    let undefined = ["core", "--kinds", "mine.kinds", "-U", "CONFIG_SMP", "--json"];
    let found = json(&fettle(folder.path(), &undefined));
    assert_eq!(found["sources"][0]["operations"], 0);

    std::fs::write(folder.path().join("mine.kinds"), "set mine\nlanguages perl\n").unwrap();
    for (arguments, status, says) in [
        (&[".", "--kinds", "mine.kinds"][..], 2, "mine.kinds:2: \"perl\" is none of the languages"),
        (&[".", "--kinds", "plan9"], 2, "none of the sets linux, freebsd"),
        (&["nowhere"], 2, "nowhere is no folder, and no revision"),
        (&[".", "--hunks"], 2, "--smp or --conditional"),
        (&[".", "--diff"], 2, "compares two sources"),
        (&[".", "--only", "none"], 1, "no file is of a language"),
    ] {
        let output = fettle(folder.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}

#[test]
fn revisions_are_compared() {
    let folder = tree();
    let path = folder.path();
    git(path, &["init", "--quiet", "--initial-branch=main"]);
    git(path, &["add", "."]);
    git(path, &["commit", "--quiet", "-m", "one"]);
    // The same contents once more, and a way out with the lock held.
    std::fs::write(path.join("core/copy.c"), QUEUE).unwrap();
    let worse = QUEUE.replace("\t\tspin_unlock(&q->lock);\n\t\treturn", "\t\treturn");
    std::fs::write(path.join("core/queue.c"), worse).unwrap();
    git(path, &["add", "."]);
    git(path, &["commit", "--quiet", "-m", "two"]);

    let output = fettle(path, &["HEAD~1", "HEAD", "--diff", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let found = json(&output);
    assert_eq!(found["operations"], serde_json::json!([6, 10]));
    let candidate = &found["new_candidates"][0];
    assert_eq!(candidate["function"], "queue_add");
    assert_eq!((&candidate["line"], &candidate["exit_line"]), (&6.into(), &8.into()));
    assert_eq!(candidate["leaving"], "on_one_way");

    let accepted = fettle(path, &["HEAD~1", "HEAD", "--diff", "--fail-on", "never"]);
    assert_eq!(accepted.status.code(), Some(0), "{accepted:?}");
    let same = fettle(path, &["HEAD", ".", "--diff", "--fail-on", "changes,candidates"]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");

    let output = fettle(path, &["HEAD~1", "HEAD~1..HEAD", "--svg", "trend.svg"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.lines().count(), 3, "{text}");
    let picture = std::fs::read_to_string(path.join("trend.svg")).unwrap();
    assert!(picture.contains("spinlock 5"), "{picture}");
}
