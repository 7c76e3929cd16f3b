package topic

import (
	"context"
	"errors"

	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Recorded is the generation that the group's ledger is in, for who has no other
// use for the ledger; zero if there is no ledger, or one that says none. Errors
// are *sharetxn.Error: fatal where a reset has not ended or the partitions differ.
func Recorded(ctx context.Context, co *core.Cluster, group string) (entry.Generation, error) {
	var there Info
	err := co.Use(func(meta *kgo.Client) (err error) {
		there, err = one(ctx, meta, Name(group))
		return err
	})
	if err != nil {
		return entry.Generation{}, Failed("Metadata", group, "Describe on topic "+Name(group), err)
	}
	if there.Partitions == 0 {
		return entry.Generation{}, nil
	}
	states, err := ReadStates(ctx, co, group, there.Partitions)
	if err != nil {
		return entry.Generation{}, err
	}
	g, err := states.Current()
	if err != nil && !errors.Is(err, ErrNoGeneration) {
		return entry.Generation{}, Unusable("Fetch", group, err)
	}
	return g, nil
}

// Ends tells how far the partitions of the group's ledger have come, but for those
// that hold nothing: who has read it knows by this whether there is more to read.
// Empty if there is no ledger.
func Ends(ctx context.Context, co *core.Cluster, group string) (ends map[int32]int64, err error) {
	err = co.Use(func(meta *kgo.Client) error {
		there, err := one(ctx, meta, Name(group))
		if err == nil && there.Partitions > 0 {
			_, ends, err = bounds(ctx, kadm.NewClient(meta), Name(group))
		}
		return err
	})
	return ends, Failed("ListOffsets", group, "Describe on topic "+Name(group), err)
}
