package foreign

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sharetxn/sharetxn/integration/kafka"
)

// java is the JVM that Java's clients and Kafka's tools run in. Safe for
// concurrent use.
type java struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	logFile string

	mu    sync.Mutex
	calls map[int]chan reply // nil after the end
	last  int
}

type reply struct {
	ID     int
	Result json.RawMessage
	Error  string
}

// startJava compiles java/*.java and starts Driver.
func startJava(ctx context.Context, dir string) (*java, error) {
	bin, jars, err := kafka.Install(ctx, kafka.DefaultVersion)
	if err != nil {
		return nil, err
	}
	javac, err := exec.LookPath("javac")
	if err != nil {
		return nil, fmt.Errorf("%w: a JDK is needed: %w", kafka.ErrUnavailable, err)
	}
	sources, err := filepath.Glob("java/*.java")
	if err != nil {
		return nil, err
	}
	classes := filepath.Join(dir, "classes")
	libs := filepath.Join(jars, "*")
	args := append([]string{"-Xlint:all,-processing", "-Werror", "-d", classes, "-cp", libs}, sources...)
	if out, err := exec.CommandContext(ctx, javac, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("javac: %w\n%s", err, out)
	}
	j := &java{logFile: filepath.Join(dir, "java.log"), calls: make(map[int]chan reply)}
	j.cmd = exec.Command(bin, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.logFile="+j.logFile,
		"-cp", classes+string(filepath.ListSeparator)+libs, "Driver")
	j.cmd.Stderr = os.Stderr
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	go j.read(out)
	return j, nil
}

// stop ends the JVM by closing its standard input.
func (j *java) stop() error {
	_ = j.in.Close()
	return end(j.cmd)
}

// log is the end of what the clients logged.
func (j *java) log() string {
	text, err := os.ReadFile(j.logFile)
	if err != nil {
		return err.Error()
	}
	const limit = 6000
	return string(text[max(0, len(text)-limit):])
}

func (j *java) read(out io.Reader) {
	lines := json.NewDecoder(bufio.NewReader(out))
	for {
		var r reply
		err := lines.Decode(&r)
		j.mu.Lock()
		if err != nil {
			for _, c := range j.calls {
				close(c)
			}
			j.calls = nil
			j.mu.Unlock()
			return
		}
		if c := j.calls[r.ID]; c != nil {
			c <- r
			delete(j.calls, r.ID)
		}
		j.mu.Unlock()
	}
}

var errJavaEnded = errors.New("the JVM has ended")

// do calls an operation of Driver; result may be nil.
func (j *java) do(ctx context.Context, op, on string, args map[string]any, result any) error {
	answer := make(chan reply, 1)
	j.mu.Lock()
	if j.calls == nil {
		j.mu.Unlock()
		return errJavaEnded
	}
	j.last++
	call := map[string]any{"id": j.last, "op": op, "on": on}
	maps.Copy(call, args)
	line, err := json.Marshal(call)
	if err == nil {
		j.calls[j.last] = answer
		_, err = j.in.Write(append(line, '\n'))
	}
	j.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case r, ok := <-answer:
		switch {
		case !ok:
			return errJavaEnded
		case r.Error != "":
			return fmt.Errorf("java: %s %s: %s", op, on, r.Error)
		case result == nil:
			return nil
		}
		return json.Unmarshal(r.Result, result)
	case <-ctx.Done():
		return fmt.Errorf("java: %s %s: %w", op, on, ctx.Err())
	}
}

// call is do for what must work.
func call[T any](ctx context.Context, t *testing.T, op, on string, args map[string]any) (result T) {
	t.Helper()
	if err := shared.java.do(ctx, op, on, args, &result); err != nil {
		t.Fatal(err)
	}
	return result
}

// run is call for what has no result.
func do(ctx context.Context, t *testing.T, op, on string, args map[string]any) {
	t.Helper()
	call[any](ctx, t, op, on, args)
}
