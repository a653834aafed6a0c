package io.github.fettle.maven;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.maven.plugin.MojoExecutionException;
import org.apache.maven.plugin.logging.Log;

/** Runs a program of the host, whose words go to the build's log. */
final class Tool {
    private Tool() {}

    static void run(Log log, List<String> command) throws IOException, MojoExecutionException {
        log.info(String.join(" ", command));
        Process process;
        try {
            process = new ProcessBuilder(command).redirectErrorStream(true).start();
        } catch (IOException e) {
            throw new MojoExecutionException(
                    command.get(0) + " can't be started: is it installed and on the PATH?", e);
        }
        process.getOutputStream().close();
        try (BufferedReader reader = new BufferedReader(
                new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
            for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                log.info(line);
            }
            int status = process.waitFor();
            if (status != 0) {
                throw new MojoExecutionException(
                        command.get(0) + " failed with status " + status + ": see above");
            }
        } catch (InterruptedException e) {
            process.destroy();
            Thread.currentThread().interrupt();
            throw new MojoExecutionException("interrupted", e);
        }
    }
}
