# not run: fettle cluster: it needs a build with the feature cluster; make test-query tests it
# not run: fettle requests: the same
