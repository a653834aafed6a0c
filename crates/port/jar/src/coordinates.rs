//! What a jar is called in a Maven repository.

use std::str::FromStr;

/// Group, artifact and version, by which a project of Maven, Gradle or the like names what it depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coordinates {
    group: String,
    artifact: String,
    version: String,
}

impl FromStr for Coordinates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let [group, artifact, version] = parts[..] else {
            return Err("write GROUP:ARTIFACT:VERSION, as in org.acme:zlib:1.3".into());
        };
        // Maven's own rules; a version becomes the name of a folder and of a file, too.
        let is_id =
            |part: &str| part.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        let is_version =
            |part: &str| part.chars().all(|c| c.is_ascii_graphic() && !FORBIDDEN.contains(c));
        for (what, part, is_valid) in [
            ("group", group, is_id(group)),
            ("artifact", artifact, is_id(artifact)),
            ("version", version, is_version(version)),
        ] {
            if part.is_empty() {
                return Err(format!("the {what} is empty"));
            }
            // What is only dots is a folder further up.
            if !is_valid || part.chars().all(|c| c == '.') {
                return Err(format!("{part:?} cannot be a {what} in Maven"));
            }
        }
        let [group, artifact, version] = [group, artifact, version].map(str::to_owned);
        Ok(Self { group, artifact, version })
    }
}

/// What Maven allows in no version: most cannot be in names of files.
const FORBIDDEN: &str = "\\/:\"<>|?*[](){},&'$";

impl Coordinates {
    /// The files by which Maven knows a jar, with their paths in it.
    pub(crate) fn files(&self) -> [(String, String); 2] {
        let Self { group, artifact, version } = self;
        let folder = format!("META-INF/maven/{group}/{artifact}");
        let pom = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n  \
             <modelVersion>4.0.0</modelVersion>\n  \
             <groupId>{group}</groupId>\n  \
             <artifactId>{artifact}</artifactId>\n  \
             <version>{version}</version>\n\
             </project>\n"
        );
        let properties = format!("artifactId={artifact}\ngroupId={group}\nversion={version}\n");
        [(format!("{folder}/pom.xml"), pom), (format!("{folder}/pom.properties"), properties)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates() {
        let read: Coordinates = "org.acme:z-lib_2:1.3-SNAPSHOT+1".parse().expect("well formed");
        let [(path, pom), (_, properties)] = read.files();
        assert_eq!(path, "META-INF/maven/org.acme/z-lib_2/pom.xml");
        assert!(pom.contains("<version>1.3-SNAPSHOT+1</version>"), "{pom}");
        assert_eq!(properties, "artifactId=z-lib_2\ngroupId=org.acme\nversion=1.3-SNAPSHOT+1\n");
        for wrong in [
            "", "a", "a:b", "a:b:c:d", ":b:1", "a::1", "a:b:", "a/b:c:1", "..:b:1", "a:b:..",
            "a:b:1/2", "a b:c:1", "a:b:<x>", "a:b:1\n2", "ä:b:1",
        ] {
            assert!(wrong.parse::<Coordinates>().is_err(), "{wrong}");
        }
    }
}
