package kafka

import "syscall"

// procAttr lets a broker die with the test binary, however that ends.
func procAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
