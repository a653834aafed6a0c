"""Apache, PHP-FPM and MariaDB: each request opens a connection to the data base, asks three statements and closes it.

php.py FOLDER PORT LOG starts the three in the foreground and ends them when it is told to. LOG gets which request went over
which connection, a line for each exchange.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

folder, front, log = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.makedirs(folder, exist_ok=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


gate, store = free_port(), free_port()
data, site = f"{folder}/data", f"{folder}/site"
for made in [data, site]:
    shutil.rmtree(made, ignore_errors=True)
    os.makedirs(made)
open(log, "a").close()
os.chmod(log, 0o666)
for path in [folder, data, site]:
    os.chmod(path, 0o777)

with open(f"{site}/index.php", "w") as script:
    # What the connection's other end is, only the data base knows for certain. Its exchanges: login, three statements, the end.
    script.write(f"""<?php
$number = $_SERVER['HTTP_X_NUMBER'];
$noted = "$number {{$_SERVER['REMOTE_PORT']}}:{front}\\n";
mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
$store = new mysqli('127.0.0.1', 'bed', '', 'information_schema', {store});
$row = $store->query('SELECT HOST FROM PROCESSLIST WHERE ID = CONNECTION_ID()')->fetch_row();
$asking = explode(':', $row[0])[1];
$rows = $store->query('SELECT COUNT(*) FROM COLLATIONS')->fetch_row();
$size = $rows[0] + strlen($store->query("SELECT REPEAT('x', $number % 100)")->fetch_row()[0]);
$store->close();
file_put_contents('{log}', $noted . str_repeat("$number $asking:{store}\\n", 5), FILE_APPEND | LOCK_EX);
echo "$number $size\\n";
""")
with open(f"{folder}/fpm.conf", "w") as conf:
    conf.write(f"""[global]
error_log = {folder}/fpm.log
[www]
user = nobody
group = nogroup
listen = 127.0.0.1:{gate}
pm = static
pm.max_children = 40
""")
with open(f"{folder}/apache.conf", "w") as conf:
    modules = "/usr/lib/apache2/modules"
    conf.write(f"""ServerName localhost
Listen 127.0.0.1:{front}
PidFile {folder}/apache.pid
ErrorLog {folder}/apache.log
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule proxy_module {modules}/mod_proxy.so
LoadModule proxy_fcgi_module {modules}/mod_proxy_fcgi.so
DocumentRoot {site}
ProxyPassMatch ^/$ fcgi://127.0.0.1:{gate}{site}/index.php
MaxKeepAliveRequests 0
""")
subprocess.run(["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root",
                "--auth-root-authentication-method=normal", "--skip-test-db"],
               check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
with open(f"{folder}/init.sql", "w") as init:
    init.write("CREATE USER bed@'127.0.0.1';\n")
commands = [
    ["mariadbd", "--no-defaults", f"--datadir={data}", "--user=root", f"--port={store}", "--bind-address=127.0.0.1",
     "--skip-name-resolve", f"--socket={folder}/sock", f"--init-file={folder}/init.sql", f"--log-error={folder}/mariadb.log"],
    ["php-fpm8.2", "-n", "-d", "extension=mysqlnd", "-d", "extension=mysqli", "-F", "-R", "-y", f"{folder}/fpm.conf"],
    ["apache2", "-DFOREGROUND", "-f", f"{folder}/apache.conf"],
]
servers = []


def end(*_):
    for server in reversed(servers):
        server.terminate()
    for server in servers:
        server.wait()
    sys.exit(0)


signal.signal(signal.SIGTERM, end)
for command, port in zip(commands, [store, gate, front]):
    servers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.05)
    else:
        raise SystemExit(f"{command[0]} does not listen on port {port}")
signal.pause()
