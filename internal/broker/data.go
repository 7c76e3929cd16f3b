package broker

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/sharetxn/sharetxn/internal/broker/journal"
	"github.com/sharetxn/sharetxn/internal/broker/mend"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
)

// data is what is kept in a folder: kfake's logs in one below it, and beside it
// a journal of what is not kfake's. Whatever a request changed is in files
// before it is answered, and before anything else is done because of it; so what
// any client may know of is there after a kill.
type data struct {
	lock    *os.File
	journal *journal.Journal
	life    int // how often the folder was opened, this time included

	mu sync.Mutex // from asking the engine what changed until the journal has it: the later answer is the later entry
}

// Keys of the journal: of one thing, or of each of many.
const (
	keptHead     = "head"
	keptFeatures = "features"
	keptTxn      = "txn/"
	keptGroup    = "group/"
	keptPart     = "part/"
	keptLog      = "log/"
	keptOffsets  = "offsets/"
)

// head is what a folder's cluster is.
type head struct {
	Profile wire.Profile
	Stock44 bool
	Brokers int
	Life    int
}

// keptLevels are features.
type keptLevels struct {
	Share, Txn int16
	Epoch      int64
}

// openData takes the folder, if one is wanted, reads its journal and makes
// kfake's logs whole.
func openData(cfg Config) (*data, map[mend.Log]mend.Found, error) {
	if cfg.Data == "" {
		return nil, nil, nil
	}
	lock, err := journal.Lock(cfg.Data)
	if err != nil {
		return nil, nil, fmt.Errorf("broker: %w", err)
	}
	j, err := journal.Open(filepath.Join(cfg.Data, "state"))
	if err != nil {
		return nil, nil, fmt.Errorf("broker: %w", errors.Join(err, lock.Close()))
	}
	if cfg.OnWrite != nil {
		j.OnWrite(cfg.OnWrite)
	}
	d := &data{lock: lock, journal: j}
	if err := d.identify(cfg); err != nil {
		return nil, nil, fmt.Errorf("broker: folder %s: %w", cfg.Data, errors.Join(err, d.close()))
	}
	found, err := d.mendLogs(cfg.Data, int32(cfg.Brokers))
	if err != nil {
		return nil, nil, fmt.Errorf("broker: %w", errors.Join(err, d.close()))
	}
	return d, found, nil
}

// identify compares what the folder's cluster is with what is wanted: states of
// one profile mean nothing in another, and leaders may be on any node.
func (d *data) identify(cfg Config) error {
	now := head{Profile: cfg.Profile, Stock44: cfg.Stock44, Brokers: cfg.Brokers, Life: 1}
	if raw, ok := d.journal.Get(keptHead); ok {
		var was head
		if err := json.Unmarshal(raw, &was); err != nil {
			return fmt.Errorf("what it is: %w", err)
		}
		now.Life = was.Life + 1
		if was.Life = now.Life; was != now {
			return fmt.Errorf("it is of %d brokers, profile %v, stock Kafka 4.4: %v; start them so, or another folder", was.Brokers, was.Profile, was.Stock44)
		}
	}
	d.life = now.Life
	if err := d.put(keptHead, now); err != nil {
		return err
	}
	return d.journal.Flush()
}

// close is for the end, when nothing changes any more.
func (d *data) close() error {
	if d == nil {
		return nil
	}
	return errors.Join(d.journal.Close(), d.lock.Close())
}

// logsFolder is kfake's.
func logsFolder(dir string) string { return filepath.Join(dir, "logs") }

func (d *data) put(key string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	d.journal.Put(key, raw)
	return nil
}

// kept reads all values under a prefix.
func kept[T any](d *data, prefix string) ([]T, error) {
	var out []T
	for key, raw := range d.journal.All() {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, fmt.Errorf("journal, %s: %w", key, err)
		}
		out = append(out, v)
	}
	return out, nil
}

func partKey(prefix string, topic [16]byte, partition int32) string {
	return fmt.Sprintf("%s%s/%d", prefix, hex.EncodeToString(topic[:]), partition)
}

// gather puts what changed in the engine into the journal.
func (d *data) gather(changed func() []share.Kept) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, k := range changed() {
		switch {
		case k.Group != nil:
			errs = append(errs, d.put(keptGroup+k.Group.Name, k.Group))
		case k.Partition != nil:
			p := k.Partition
			errs = append(errs, d.put(partKey(keptPart+p.Group+"/", p.Topic, p.Partition), p))
		case k.GroupGone != "":
			d.journal.Delete(keptGroup + k.GroupGone)
		default:
			d.journal.Delete(partKey(keptPart+k.PartitionGroup+"/", k.PartitionGone.Topic, k.PartitionGone.Partition))
		}
	}
	return errors.Join(errs...)
}

// durable returns when all that happened before survives the process. Where that
// cannot be the cluster ends: it must not answer for what it may forget.
func (c *Cluster) durable() error {
	if c.data == nil {
		return nil
	}
	err := c.data.gather(c.engine.Changed)
	if err == nil {
		err = c.data.journal.Flush()
	}
	if err != nil && c.die.Err() == nil {
		c.fail(fmt.Errorf("broker: %w", err))
	}
	return err
}

// keepTxn is txn.Config.Keep. What cannot be encoded is a mistake in the image.
func (c *Cluster) keepTxn(x txn.Image) {
	if err := c.data.put(keptTxn+x.ID, x); err != nil {
		c.fail(fmt.Errorf("broker: transactional id %s: %w", x.ID, err))
	}
}

// keepLog keeps what a partition's log does not say itself: who leads it, and
// where it begins, also when nothing is left of it.
func (c *Cluster) keepLog(topic string, partition int32) {
	if c.data == nil {
		return
	}
	p := c.kf.PartitionInfo(topic, partition)
	if p == nil {
		return
	}
	k := mend.Known{Leader: p.Leader, Epoch: p.Epoch, Start: p.LogStartOffset, End: p.HighWatermark}
	if err := c.data.put(partKey(keptLog, c.TopicID(topic), partition), k); err != nil {
		c.fail(fmt.Errorf("broker: log %s-%d: %w", topic, partition, err))
	}
}

// keepLevels keeps the features; c.features.mu is held.
func (c *Cluster) keepLevels() {
	if c.data == nil {
		return
	}
	if err := c.data.put(keptFeatures, keptLevels{c.features.levels.share, c.features.levels.txn, c.features.epoch}); err != nil {
		c.fail(fmt.Errorf("broker: features: %w", err))
	}
}

// mendLogs makes kfake's folder whole. Share partitions tell how long a log was
// at the least, where retention has taken all of it.
func (d *data) mendLogs(dir string, brokers int32) (map[mend.Log]mend.Found, error) {
	parts, err := kept[share.PartitionImage](d, keptPart)
	if err != nil {
		return nil, err
	}
	ends := make(map[share.Place]int64)
	for _, p := range parts {
		end := p.Start
		for _, e := range p.Entries {
			end = max(end, e.Last+1)
		}
		at := share.Place{Topic: p.Topic, Partition: p.Partition}
		ends[at] = max(ends[at], end)
	}
	var errs []error
	found, err := mend.Dir(logsFolder(dir), func(log mend.Log) mend.Known {
		k := mend.Known{Leader: log.Partition % brokers}
		if raw, ok := d.journal.Get(partKey(keptLog, log.ID, log.Partition)); ok {
			if err := json.Unmarshal(raw, &k); err != nil {
				errs = append(errs, fmt.Errorf("journal, log %s-%d: %w", log.Topic, log.Partition, err))
			}
		}
		k.End = max(k.End, ends[share.Place{Topic: log.ID, Partition: log.Partition}])
		return k
	})
	return found, errors.Join(append(errs, err)...)
}

// restore takes in what the folder has; kfake has its part of it already, and
// nothing is served yet.
func (c *Cluster) restore(found map[mend.Log]mend.Found) error {
	for log, f := range found {
		for id, epoch := range f.Markers {
			c.marked.note(markedLog{log.ID, log.Partition, id}, epoch)
		}
	}
	if raw, ok := c.data.journal.Get(keptFeatures); ok {
		var l keptLevels
		if err := json.Unmarshal(raw, &l); err != nil {
			return fmt.Errorf("journal, features: %w", err)
		}
		c.features.levels, c.features.epoch = levels{share: l.Share, txn: l.Txn}, l.Epoch
		c.engine.SetStaging(!c.cfg.Stock44 && c.features.levels.staging(c.cfg.Profile))
	}
	groups, err := kept[share.GroupImage](c.data, keptGroup)
	if err != nil {
		return err
	}
	parts, err := kept[share.PartitionImage](c.data, keptPart)
	if err != nil {
		return err
	}
	offsets, err := kept[keptTxnOffsets](c.data, keptOffsets)
	if err != nil {
		return err
	}
	txns, err := kept[txn.Image](c.data, keptTxn)
	if err != nil {
		return err
	}
	c.engine.Restore(groups, parts)
	for _, o := range offsets {
		if err := (backend{c}).restage(o); err != nil {
			return fmt.Errorf("offsets of a transaction: %w", err)
		}
	}
	c.txns.Restore(txns)
	return nil
}
