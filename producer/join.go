package producer

import "github.com/sharetxn/sharetxn/internal/bind"

// Acknowledgements is what a transaction can hold: a polled
// *shareconsumer.Batch, or several by Join. It is sealed; a framework with
// records of another process uses Txn.SendShareAcknowledgementsToTransaction.
type Acknowledgements interface{ Bind() bind.Handle }

// Join makes one of several batches, also of several groups.
func Join(in ...Acknowledgements) Acknowledgements { return joined(in) }

type joined []Acknowledgements

// Bind implements Acknowledgements. The handle stands for all of them and is
// only ever taken apart by handles.
func (j joined) Bind() bind.Handle {
	hs := handles(j)
	if len(hs) == 0 {
		return nil
	}
	return several{hs[0], hs[1:]}
}

type several struct {
	bind.Handle
	rest []bind.Handle
}

func handles(in []Acknowledgements) (hs []bind.Handle) {
	for _, a := range in {
		if a == nil {
			continue
		}
		switch h := a.Bind().(type) {
		case nil:
		case several:
			hs = append(append(hs, h.Handle), h.rest...)
		default:
			hs = append(hs, h)
		}
	}
	return hs
}
