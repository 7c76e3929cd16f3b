package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kgo"
)

// maxLine is the longest line, in bytes: what kgo and Kafka take as one record
// by default is 1,000,012, and a dead letter has key and reason beside it.
const maxLine = 900_000

// readLines reads until the input ends; the audit needs all of it in the end.
// It returns when ctx ends, also within a read that blocks, as one from a
// terminal does: that read goes on until it gets something.
func readLines(ctx context.Context, in io.Reader) ([][]byte, error) {
	type result struct {
		lines [][]byte
		err   error
	}
	done := make(chan result, 1)
	go func() {
		lines, err := scan(ctx, in)
		done <- result{lines, err}
	}()
	select {
	case r := <-done:
		return r.lines, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func scan(ctx context.Context, in io.Reader) (lines [][]byte, err error) {
	s := bufio.NewScanner(in)
	s.Buffer(nil, maxLine+len("\r\n"))
	n := 0
	for ctx.Err() == nil && s.Scan() {
		n++
		switch line := s.Bytes(); {
		case len(line) > maxLine:
			return nil, tooLong(n)
		case len(line) > 0:
			lines = append(lines, bytes.Clone(line))
		}
	}
	switch err := s.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, tooLong(n + 1)
	case err != nil:
		return nil, fmt.Errorf("input: %w", err)
	}
	return lines, context.Cause(ctx)
}

func tooLong(line int) error {
	return fmt.Errorf("input: line %d has more than %d bytes, which is what fits into a record", line, maxLine)
}

// number is the record's number in the input, by its place on the source topic.
func number(partition int32, offset int64) int { return int(offset)*partitions + int(partition) }

// fed is how many of the input's first records go to a partition.
func fed(input int, partition int32) int64 {
	return int64((input + partitions - 1 - int(partition)) / partitions)
}

// feed gives the lines from number from on to a source topic, partition by
// partition in turn.
func feed(ctx context.Context, k *kgo.Client, topic string, lines [][]byte, from int) error {
	var failed error // promises come one at a time, and all before Flush returns
	for i, line := range lines {
		k.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32((from + i) % partitions), Value: line}, func(_ *kgo.Record, err error) {
			if failed == nil {
				failed = err
			}
		})
	}
	if err := k.Flush(ctx); err != nil {
		return fmt.Errorf("feeding: %w", err)
	}
	if failed != nil {
		return fmt.Errorf("feeding: %w", failed)
	}
	return nil
}
