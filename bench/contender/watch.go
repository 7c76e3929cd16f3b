package contender

import "time"

// watch takes the times of one job.
type watch struct {
	began     time.Time
	report    Report
	first     time.Time
	cpu       time.Duration // of the process when first was taken
	requests  requests      // for who gives it to its kgo clients
	before    map[string]int
	announced func() // called with the first records
}

func newWatch(announced func()) *watch { return &watch{began: time.Now(), announced: announced} }

// polled counts what a poll gave.
func (w *watch) polled(records int, bytes int64) {
	if records == 0 {
		return
	}
	now := time.Now()
	if w.first.IsZero() {
		w.first, w.cpu, w.before = now, processorTime(), w.requests.now()
		w.report.First, w.report.Start = records, now.Sub(w.began)
		w.announced()
	}
	w.report.Records += records
	w.report.Polls++
	w.report.Bytes += bytes
	w.report.Read = now.Sub(w.first)
}

// acknowledged ends the job.
func (w *watch) acknowledged() {
	w.report.Acked, w.report.CPU = time.Since(w.first), processorTime()-w.cpu
	w.report.Requests = w.requests.since(w.before)
}
