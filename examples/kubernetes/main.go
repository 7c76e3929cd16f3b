// Command kubernetes is a service as a pod runs it: it stops without losing or
// doubling anything, says when it is ready, and has a name of its own among its
// replicas. statefulset.yaml stands beside it. It needs brokers that have
// KIP-1289.
//
// The first SIGTERM or SIGINT is the soft stop: what is in hand is finished and
// committed within -stop-timeout, the rest goes back to the group at once. The
// second is the hard stop: handlers' contexts end, the open transaction aborts,
// all goes back. The exit status is 0 after a soft stop, also after one that
// -stop-timeout made hard, 3 after a second signal, 1 after an error, which the
// log names, and 2 for a wrong flag.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	exitError = 1
	exitHard  = 3
)

var errHard = errors.New("stopped hard by a second signal")

func main() { os.Exit(command(os.Args[1:], shout)) }

// shout is where your service is.
func shout(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
	return []*kgo.Record{{Topic: "shouts", Key: in.Key, Value: []byte(strings.ToUpper(string(in.Value)))}}, nil
}

// command is the program but for its end: it gives the exit status.
func command(args []string, handler processor.Handler) int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	err := run(args, handler, signals)
	if err == nil {
		return 0
	}
	log.Print(err)
	if errors.Is(err, errHard) {
		return exitHard
	}
	return exitError
}

func run(args []string, handler processor.Handler, signals <-chan os.Signal) error {
	fs := flag.NewFlagSet("kubernetes", flag.ExitOnError)
	seeds := fs.String("bootstrap", "localhost:9092", "brokers, separated by commas")
	group := fs.String("group", "shouters", "share group; Kafka starts a new one at the end of its topics, unless its config share.auto.offset.reset says earliest")
	topic := fs.String("topic", "words", "topic to consume")
	dead := fs.String("dead", "words.dead", "topic for dead letters")
	listen := fs.String("health", ":8080", "address for probes")
	stop := fs.Duration("stop-timeout", 20*time.Second, "from soft to hard stop; the pod's grace period must be 20 s longer")
	_ = fs.Parse(args) // exits on an error
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(strings.Split(*seeds, ",")...)))
	if err != nil {
		return err
	}
	defer cl.Close()
	p, err := processor.New(cl, processor.Config{
		Group:       *group,
		Topics:      []string{*topic},
		Handler:     handler,
		DeadLetter:  processor.DeadLetter{Topic: *dead},
		Instance:    os.Getenv("POD_NAME"), // empty: the host name, which is the pod's too
		StopTimeout: *stop,
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: health(p), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Print(err)
		}
	}()
	defer srv.Close()
	log.Printf("probes at %v", l.Addr())
	return serve(p, signals)
}

// serve runs p until the first signal, which stops it softly, and the second,
// which stops it hard.
func serve(p *processor.Processor, signals <-chan os.Signal) error {
	ctx, soft := context.WithCancel(context.Background())
	defer soft()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	select {
	case err := <-ended:
		return err
	case s := <-signals:
		log.Printf("%v: finishing what is in hand", s)
		soft()
	}
	select {
	case err := <-ended:
		return err
	case s := <-signals:
		log.Printf("%v: stopping hard", s)
		if p.Stop(ctx) == nil { // it had just ended
			return <-ended
		}
		return errors.Join(errHard, <-ended)
	}
}

// health answers probes. Ready: every member has joined and works. Live: the
// process answers; what Kafka does to us a restart would not mend, and an error
// that is fatal ends the process anyway.
func health(p *processor.Processor) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if !p.Status().Ready {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	})
	return mux
}
