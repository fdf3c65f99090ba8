package syncer

import (
	"context"

	"go.uber.org/zap"

	"dbcontroller.dev/record"
)

// awaitReplaced waits until the deployment follows the collection that an application has put in
// place of its own. That ends this engine, and another one copies everything again. Meanwhile no
// shard is ready and the target stays unchanged. Once the direction is over, the stream is not
// needed and the error ends the engine.
func (e *Engine) awaitReplaced(ctx context.Context, what *record.ReplacedError) error {
	e.mu.Lock()
	over := e.over()
	e.mu.Unlock()
	if over {
		return what
	}
	defer e.setReplaced("")
	e.setReplaced(what.Error())
	// Reported shards would let a switch start without the new collection's records.
	if err := e.withdrawAll(ctx); err != nil {
		e.Log.Debug("reports are taken back later", zap.Error(err)) // housekeeping retries
	}
	for {
		err := e.Replaced(ctx, e.bound, what)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			e.setReplaced(err.Error())
			e.failed(following, err)
		}
		// The watch may be behind, and the new record ends this engine.
		if refreshErr := e.refresh(ctx); refreshErr != nil {
			e.Log.Debug("refresh", zap.Error(refreshErr))
		}
		e.mu.Lock()
		passed := e.foreign(e.record)
		if e.over() {
			passed = errOver
		}
		e.mu.Unlock()
		if passed != nil {
			return passed
		}
		if err := wait(ctx, e.cfg.Every); err != nil {
			return err
		}
		if err == nil {
			return nil // the collection is followed, and the next record ends this engine
		}
	}
}

func (e *Engine) setReplaced(why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.replaced = why
	e.announce()
}
