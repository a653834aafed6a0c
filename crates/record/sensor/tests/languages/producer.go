// The Go twin of c/producer.c.
package main

import (
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"fettle.dev/sensor"
)

func main() {
	var numbers [5]uint64
	for i := range numbers {
		numbers[i], _ = strconv.ParseUint(os.Args[2+i], 10, 64)
	}
	file, err := os.OpenFile(os.Args[1], os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	page, err := syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	truth := (*[512]uint64)(unsafe.Pointer(&page[0]))
	events := sensor.NewListOf("test.events", 1, 1, sensor.Policy(numbers[0]), uint32(numbers[1]), 5, uint32(numbers[2]))
	var all sync.WaitGroup
	for thread := uint64(0); thread < numbers[3]; thread++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := uint64(0); numbers[4] == 0 || i < numbers[4]; i++ {
				word := thread<<48 | i
				atomic.StoreUint64(&truth[2*thread], i+1)
				events.Commit(uint16(i), word, word*0x9e3779b97f4a7c15)
				atomic.StoreUint64(&truth[2*thread+1], i+1)
			}
		}()
	}
	all.Wait()
}
