# What tools written in Python do with documents, pages and sources: docutils renders, html5lib
# reads and writes, Mako fills in, Pygments highlights, lib2to3 rewrites. Takes how many rounds it
# goes; without an end otherwise.
import gzip, itertools, os, sys
sys.path.append('/usr/lib/python3/dist-packages')  # for a Python that is not Debian's own
import docutils.core, html5lib, mako.template
import pygments, pygments.formatters, pygments.lexers
from lib2to3 import refactor

rounds = int(sys.argv[1]) if len(sys.argv) > 1 else -1
out = os.open('/dev/null', os.O_WRONLY)
with gzip.open('/usr/share/doc/python3-docutils/FAQ.txt.gz', 'rt') as file:
    DOCUMENT = ''.join(itertools.islice(file, 300))
QUIET = {'report_level': 5}
def render(): return docutils.core.publish_string(DOCUMENT, writer_name='html', settings_overrides=QUIET)
HTML = render().decode()
with open(refactor.__file__) as file:
    SOURCE = file.read()[:6000]
SOURCE = SOURCE[:SOURCE.rindex('\n\n\n') + 3]
PAGE = mako.template.Template('''<table>
% for row in rows:
<tr>${cells(row)}</tr>
% endfor
</table>
<%def name="cells(row)">
% for cell in row:
<td>${cell | h}</td>
% endfor
</%def>
''')
ROWS = [[i * j for j in range(10)] for i in range(40)]
lexer, formatter = pygments.lexers.get_lexer_by_name('python'), pygments.formatters.HtmlFormatter()
tool = refactor.RefactoringTool(['lib2to3.fixes.fix_' + fix for fix in ('print', 'dict', 'unicode')])

steps = [
    render,
    lambda: html5lib.serialize(html5lib.parse(HTML)),
    lambda: PAGE.render(rows=ROWS),
    lambda: pygments.highlight(SOURCE, lexer, formatter),
    lambda: tool.refactor_string(SOURCE, 'source'),
]
while rounds:
    rounds -= 1
    for step in steps:
        step()
        os.write(out, b'.')
