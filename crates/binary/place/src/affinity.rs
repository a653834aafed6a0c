//! The order of pieces of code by which piece calls which.
//!
//! Call-chain clustering (G. Ottoni and B. Maher, Optimizing Function Placement for Large-Scale
//! Data-Center Applications, CGO 2017): from the hottest piece to the coldest, each is appended to
//! the cluster that leads to it most often, as long as the two fit in a page together. Clusters are
//! then ordered by density.

/// Bytes that a cluster may grow to: pieces farther apart share neither a line nor a page.
const CLUSTER_MAX: u64 = 4096;
/// A cluster that is so much less dense than its predecessor stays apart.
const THINNING_MAX: f64 = 8.0;

/// A piece to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Bytes.
    pub size: u64,
    /// Instructions run in it.
    pub heat: u64,
}

/// The order of `pieces`, of which one leads to another as often as `arcs` say.
pub fn order(pieces: &[Piece], arcs: &[(usize, usize, u64)]) -> Vec<usize> {
    let mut clusters: Vec<Vec<usize>> = (0..pieces.len()).map(|p| vec![p]).collect();
    let mut of: Vec<usize> = (0..pieces.len()).collect();
    let mut size: Vec<u64> = pieces.iter().map(|p| p.size).collect();
    let mut heat: Vec<u64> = pieces.iter().map(|p| p.heat).collect();
    let density = |heat: u64, size: u64| heat as f64 / size.max(1) as f64;
    let mut into: Vec<Vec<(usize, u64)>> = vec![Vec::new(); pieces.len()];
    for (from, to, count) in arcs {
        if from != to && *count > 0 {
            into[*to].push((*from, *count));
        }
    }
    let by_density = |a: f64, b: f64| b.total_cmp(&a);
    let mut hottest: Vec<usize> = (0..pieces.len()).collect();
    hottest.sort_by(|a, b| {
        let of = |p: usize| density(pieces[p].heat, pieces[p].size);
        by_density(of(*a), of(*b)).then(a.cmp(b))
    });
    for piece in hottest {
        let own = of[piece];
        let Some((from, _)) = into[piece].iter().max_by_key(|(from, n)| (*n, !*from)) else {
            continue;
        };
        let cluster = of[*from];
        let joined = density(heat[cluster] + heat[own], size[cluster] + size[own]);
        if cluster == own
            || clusters[own][0] != piece
            || size[cluster] + size[own] > CLUSTER_MAX
            || joined * THINNING_MAX < density(heat[cluster], size[cluster])
        {
            continue;
        }
        let members = std::mem::take(&mut clusters[own]);
        for member in &members {
            of[*member] = cluster;
        }
        clusters[cluster].extend(members);
        size[cluster] += size[own];
        heat[cluster] += heat[own];
    }
    let mut order: Vec<usize> = (0..clusters.len()).filter(|c| !clusters[*c].is_empty()).collect();
    order.sort_by(|a, b| {
        let of = |c: usize| density(heat[c], size[c]);
        by_density(of(*a), of(*b)).then(a.cmp(b))
    });
    order.into_iter().flat_map(|c| std::mem::take(&mut clusters[c])).collect()
}
