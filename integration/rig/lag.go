package rig

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Lag of a share group as its coordinator tells it (DescribeShareGroupOffsets
// v1), over that many share partitions; -1 where it cannot tell.
func Lag(ctx context.Context, adm *kadm.Client, group string, partitions int) (n int64) {
	d, err := adm.DescribeShareGroupOffsets(ctx, group)
	if err != nil || d.Error() != nil {
		return -1
	}
	seen := 0
	for _, ps := range d[group].Offsets {
		for _, o := range ps {
			if o.Err != nil || o.Lag < 0 {
				return -1
			}
			seen++
			n += o.Lag
		}
	}
	if seen != partitions {
		return -1
	}
	return n
}
