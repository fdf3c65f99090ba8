package app

import (
	"strings"

	"go.uber.org/zap"

	"dbcontroller.dev/appclient/client"
	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/control/forward"
)

// othersOf converts what a configuration says about other controllers.
func othersOf(cfg config.Config, id string, log *zap.Logger) forward.Config {
	out := forward.Config{ID: id, Address: cfg.Address, Known: cfg.Controllers, Peers: clientOf(cfg.Peers), Log: log}
	for _, r := range cfg.APIRegions {
		to := clientOf(r.Peers)
		to.Server = strings.Join(r.Controllers, ",")
		out.Regions = append(out.Regions, forward.Region{Name: r.Name, Controllers: to})
	}
	return out
}

func clientOf(p config.Peers) client.Config {
	return client.Config{CA: p.CAFile, Cert: p.CertFile, Key: p.KeyFile}
}
