package localmongo

import (
	"context"
	"strconv"

	"dbcontroller.dev/integration/localdocker"
)

const dockerImage = "mongo:8.2"

// startDocker runs the official image as a replica set of one node. The member's own name is valid
// inside its container only, so clients must connect directly.
func startDocker(ctx context.Context, o Options) (_ *Server, err error) {
	c, err := localdocker.Run(ctx, "mongodb", "--replSet", setName,
		"--wiredTigerCacheSizeGB", strconv.FormatFloat(o.CacheGB, 'f', -1, 64), "--oplogSize", strconv.Itoa(o.OplogMB))
	if err != nil {
		return nil, err
	}
	s := &Server{stop: c.Stop}
	defer func() {
		if err != nil {
			_ = s.Stop(context.WithoutCancel(ctx)) // the start's error matters
		}
	}()
	// The download of the image is over. The rest takes seconds.
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	client, err := direct(c.Address)
	if err != nil {
		return nil, err
	}
	defer disconnect(ctx, client)
	if err := initiate(ctx, client, setName, []string{"127.0.0.1:27017"}, false); err != nil {
		return nil, err
	}
	if err := awaitRole(ctx, client, false); err != nil {
		return nil, err
	}
	s.uri = "mongodb://" + c.Address + "/?directConnection=true"
	return s, nil
}
