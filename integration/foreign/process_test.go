package foreign

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// endWait is how long a process may take to end when it is asked to.
const endWait = 10 * time.Second

// build compiles the program whose broker the tests run on.
func build(ctx context.Context, dir string) (binary string, err error) {
	binary = filepath.Join(dir, "sharetxn")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/sharetxn")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return binary, nil
}

// brokers are those of one `sharetxn broker` process.
type brokers struct {
	cmd   *exec.Cmd
	seeds []string
}

func startBroker(ctx context.Context, binary string, args ...string) (*brokers, error) {
	cmd := exec.Command(binary, append([]string{"broker", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b := &brokers{cmd: cmd}
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(out).ReadString('\n') // the end of the process is seen as a line that is wrong
		line <- text
	}()
	select {
	case text := <-line:
		_, list, ok := strings.Cut(strings.TrimSpace(text), "listening: ")
		if !ok {
			return nil, errors.Join(fmt.Errorf("the broker says %q", text), b.stop())
		}
		b.seeds = strings.Split(list, ",")
		return b, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), b.stop())
	}
}

// stop interrupts the broker, which must end well.
func (b *brokers) stop() error {
	_ = b.cmd.Process.Signal(os.Interrupt) // fails only for one that has ended
	return end(b.cmd)
}

// end waits for a process; one that does not end in time is killed.
func end(cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(endWait):
		_ = cmd.Process.Kill()
		return fmt.Errorf("%s did not end: %w", filepath.Base(cmd.Path), <-ended)
	}
}
