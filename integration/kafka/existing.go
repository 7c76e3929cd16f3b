package kafka

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// BootstrapEnv names the variable with the addresses of a cluster that runs
// already: host:port, several parted by commas. Tests use it and disturb nobody.
const BootstrapEnv = "SHARETXN_BOOTSTRAP"

// Bootstrap are the addresses in BootstrapEnv; empty if there are none.
func Bootstrap() []string {
	return strings.FieldsFunc(os.Getenv(BootstrapEnv), func(r rune) bool { return r == ',' || r == ' ' })
}

// existing is somebody else's cluster.
type existing []string

// Join gives the cluster that runs at these addresses. One that does not answer
// is an error, and not ErrUnavailable: whoever names a cluster wants that one.
func Join(ctx context.Context, seeds ...string) (*Cluster, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	meta, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("the cluster at %v: %w", seeds, err)
	}
	ask := kmsg.NewPtrApiVersionsRequest()
	ask.ClientSoftwareName, ask.ClientSoftwareVersion = "sharetxn-tests", "0"
	versions, err := ask.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("the cluster at %v: %w", seeds, err)
	}
	guess := kversion.FromApiVersionsResponse(versions).VersionGuess()
	c := &Cluster{Nodes: existing(seeds), Kind: Existing, Version: cmp.Or(os.Getenv(VersionEnv), guess), Brokers: len(meta.Brokers)}
	return c, nil
}

func (e existing) Seeds() []string   { return e }
func (existing) Kill(int32) error    { return ErrNotOurs }
func (existing) Restart(int32) error { return ErrNotOurs }
func (existing) Pause(int32) error   { return ErrNotOurs }
func (existing) Resume(int32) error  { return ErrNotOurs }
func (existing) Process(int32) int   { return 0 }
func (existing) Ended() error        { return nil }
func (existing) Stop() error         { return nil }
func (existing) Logs() string        { return "an existing cluster keeps its own logs\n" }

func (existing) Said(string) (int, error) { return 0, ErrNotOurs }
