package cli

import (
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"dbcontroller/cmd/dbcontroller/controller"
	"dbcontroller/cmd/internal/process"
	"dbcontroller/config"
	"dbcontroller/record"
	"dbcontroller/sample/bbs"
	"dbcontroller/sample/secrets"
	"dbcontroller/transform"
	"dbcontroller/transform/lens"
)

func runCommand() *cobra.Command {
	var common process.Flags
	var opts controller.Options
	cmd := &cobra.Command{
		Use:   "run --config FILE",
		Short: "Run a controller: copy, sync, verify, switch, and serve the Deployment API",
		Long: "Run a controller. Several controllers over the same etcd share the shards; any of them can be\n" +
			"stopped (SIGTERM hands its shards over) or killed at any time.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := process.Start(cmd.Context(), common)
			if err != nil {
				return err
			}
			defer p.Close()
			registry, carries, err := Transformers(p.Config)
			if err != nil {
				return err
			}
			opts.Carry = carries
			opts.ID = p.ID
			return controller.New(p.Config, registry, p.Store, opts, p.Log).Run(cmd.Context())
		},
	}
	common.Register(cmd.Flags())
	cmd.Flags().BoolVar(&common.EmbeddedEtcd, "embedded-etcd", false, "host etcd in this process, in dataDir, where local processes find it")
	cmd.Flags().StringVar(&opts.APIListen, "api-listen", "", "address of the Deployment API (default: api.listen of the configuration)")
	cmd.Flags().StringVar(&opts.OperatorListen, "operator-listen", "", "address of /healthz, /readyz, /metrics and pprof (default: operator.listen)")
	return cmd
}

// Transformers is the registry of a configuration: the service's own transformers, for
// the services that this binary knows, and a lens for each fixed-name kind.
func Transformers(cfg config.Config) (*transform.Registry, map[string]controller.Carry, error) {
	service := strings.Split(cfg.Deployment, "/")[1]
	r := transform.NewRegistry(service)
	specs := map[[2]string][]transform.Spec{}
	if service == bbs.Service {
		specs[[2]string{bbs.V1, bbs.V2}] = append(bbs.Specs(), secrets.Specs()...)
	}
	shapes := map[string]controller.Carry{}
	versions := cfg.Versions()
	if len(cfg.Kinds) > 0 && len(versions) != 2 {
		return nil, nil, fmt.Errorf("kinds: fixed-name kinds need exactly two versions in dbs, there are %d", len(versions))
	}
	lenses, err := loadLenses(cfg.Kinds)
	if err != nil {
		return nil, nil, err
	}
	for i, k := range cfg.Kinds {
		pair := [2]string{versions[0], versions[1]}
		if k.Discontinued {
			specs[pair] = append(specs[pair], discontinued(k.From))
			continue
		}
		made, err := carries(k, lenses[i])
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(shapes, made)
		specs[pair] = append(specs[pair], lenses[i].Spec(k.From, k.To))
	}
	for pair, ss := range specs {
		if err := r.Add(pair[0], pair[1], ss...); err != nil {
			return nil, nil, err
		}
	}
	return r, shapes, nil
}

// loadLenses reads the lens of each kind, nil for those that are discontinued, and links
// them to each other.
func loadLenses(kinds []config.Kind) ([]*lens.Lens, error) {
	lenses, set := make([]*lens.Lens, len(kinds)), lens.NewSet()
	for i, k := range kinds {
		if k.Discontinued {
			set.AddDiscontinued(k.From)
			continue
		}
		text, err := os.ReadFile(k.Lens)
		if err != nil {
			return nil, fmt.Errorf("kinds: lens of %s: %w", k.From, err)
		}
		if lenses[i], err = lens.Parse(k.Lens, text); err != nil {
			return nil, err
		}
		set.Add(k.From, k.To, lenses[i])
	}
	return lenses, set.Link()
}

// discontinued is the spec of a kind that the newer version does not have.
func discontinued(kind string) transform.Spec {
	return transform.Spec{
		Name: kind, Revision: "discontinued", Discontinued: true,
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: kind, Fixed: true}}}},
	}
}
