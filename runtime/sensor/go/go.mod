module fettle.dev/sensor

go 1.21
