package kafka

import "syscall"

// procAttr lets a broker die with the program that started it, however that ends,
// but not of an interrupt that a terminal sends to the program.
func procAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
