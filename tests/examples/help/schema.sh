# quick
fettle schema show queues > shop.fettle-schema
