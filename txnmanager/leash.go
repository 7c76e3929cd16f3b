package txnmanager

import (
	"context"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
)

// leash gives Close a hold on every wait, also on those that ignore their
// callers' contexts because an outcome is open. The zero leash is ready.
type leash struct {
	mu   sync.Mutex
	cut  bool
	held map[*context.CancelCauseFunc]struct{}
}

// hold derives a context that ends with ctx or with the leash.
func (l *leash) hold(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		cancel(sharetxn.ErrClosed)
		return ctx, func() {}
	}
	if l.held == nil {
		l.held = make(map[*context.CancelCauseFunc]struct{})
	}
	l.held[&cancel] = struct{}{}
	return ctx, func() {
		l.mu.Lock()
		delete(l.held, &cancel)
		l.mu.Unlock()
		cancel(nil)
	}
}

// detach derives a context with the values of ctx that ends after d or with
// the leash, and not with ctx.
func (l *leash) detach(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, free := l.hold(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, d)
	return ctx, func() { cancel(); free() }
}

// bound derives a context that ends with ctx, after d, or with the leash.
func (l *leash) bound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, free := l.hold(ctx)
	ctx, cancel := context.WithTimeout(ctx, d)
	return ctx, func() { cancel(); free() }
}

// sever ends all contexts of the leash, also those to come.
func (l *leash) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for cancel := range l.held {
		(*cancel)(sharetxn.ErrClosed)
	}
}
