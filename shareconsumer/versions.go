package shareconsumer

import (
	"context"
	"fmt"

	"github.com/sharetxn/sharetxn"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Keys of the APIs that a member needs.
const (
	keyMetadata    = 3
	keyHeartbeat   = 76
	keyFetch       = 78
	keyAcknowledge = 79
)

// renewals is the version of ShareAcknowledge that has them.
const renewals = 2

// need is a version of an API, and what it is for.
type need struct {
	key     int16
	version int16
	what    string
}

// needs is what every broker must offer: version 0 of the share APIs was never
// released for use, and older metadata tells no topic ids.
func (c *Consumer) needs() []need {
	const groups = "share groups (KIP-932) need Kafka 4.1 or later with share.version 1"
	needs := []need{{keyMetadata, 10, groups}, {keyHeartbeat, 1, groups}, {keyFetch, 1, groups}, {keyAcknowledge, 1, groups}}
	if c.cfg.acquire == RecordLimit {
		needs = append(needs, need{keyFetch, 2, "AcquireMode(RecordLimit) needs Kafka 4.2 or later; BatchOptimized works with older brokers"})
	}
	return needs
}

// offers asks a broker for the highest version that it has of each API.
func offers(ctx context.Context, ask func(context.Context, kmsg.Request) (kmsg.Response, error)) (map[int16]int16, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "sharetxn", "0"
	kresp, err := ask(ctx, req)
	if err != nil {
		return nil, err
	}
	offered := make(map[int16]int16)
	for _, k := range kresp.(*kmsg.ApiVersionsResponse).ApiKeys {
		offered[k.ApiKey] = k.MaxVersion
	}
	return offered, nil
}

// lacking names the first need that is not met; empty: none.
func lacking(needs []need, offered map[int16]int16) string {
	for _, n := range needs {
		if have, ok := offered[n.key]; !ok || have < n.version {
			found := "does not have it"
			if ok {
				found = fmt.Sprintf("has version %d", have)
			}
			return fmt.Sprintf("%s: version %d of API key %d; the broker %s", n.what, n.version, n.key, found)
		}
	}
	return ""
}

func (c *Consumer) unsupported(lacks string) error {
	return &sharetxn.Error{Op: "Poll", Class: sharetxn.ClassFatal, Group: c.group, Err: fmt.Errorf("%w: %s", sharetxn.ErrUnsupported, lacks)}
}
