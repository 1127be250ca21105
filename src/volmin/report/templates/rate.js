"use strict";
// The interval of the noise rate after decisions, as volmin.auditing.check computes it.
const noiseRateAfter = (() => {
  const total = (values) => values.reduce((sum, value) => sum + value, 0);
  const mean = (values, sizes) => total(values.map((value, k) => value * sizes[k])) / total(sizes);
  // The sizes are the weights of the rows, with a mean of one.
  const covariance = (x, y, sizes) => {
    const a = mean(x, sizes), b = mean(y, sizes), n = x.length;
    return total(x.map((value, k) => sizes[k] * (value - a) * (y[k] - b))) / (n - total(sizes.map((size) => size * size)) / n);
  };
  const logExpit = (x) => x < 0 ? x - Math.log1p(Math.exp(x)) : -Math.log1p(Math.exp(-x));

  // P(X <= count) of a binomial variable.
  function atMost(count, total, share) {
    let probability = 0, logChoose = 0;
    for (let k = 0; k <= count; k += 1) {
      probability += Math.exp(logChoose + k * Math.log(share) + (total - k) * Math.log1p(-share));
      logChoose += Math.log((total - k) / (k + 1));
    }
    return probability;
  }

  // The share at which a decreasing function falls below the tail.
  function solve(decreasing, tail) {
    let low = 0, high = 1;
    for (let step = 0; step < 60; step += 1) {
      const middle = (low + high) / 2;
      if (decreasing(middle) > tail) low = middle; else high = middle;
    }
    return (low + high) / 2;
  }

  // Clopper–Pearson.
  function counted(count, total, level) {
    const tail = (1 - level) / 2;
    return [
      count ? solve((share) => atMost(count - 1, total, share), 1 - tail) : 0,
      count < total ? solve((share) => atMost(count, total, share), tail) : 1,
    ];
  }

  // Prediction-powered inference for rows that were drawn at random.
  function powered(model, given, predicted, wrong) {
    const n = wrong.length, average = total(given) / n, sizes = given.map((size) => size / average);
    if (n < model.few || n === model.rows) {
      const effective = Math.floor(n * n / total(sizes.map((size) => size * size)) + 1e-9);
      return counted(Math.floor(mean(wrong, sizes) * effective + .5), effective, model.level);
    }
    const power = Math.min(Math.max(covariance(predicted, wrong, sizes) / Math.max(covariance(predicted, predicted, sizes), 1e-12), 0), 1);
    const residuals = wrong.map((value, k) => value - power * predicted[k]);
    const centre = mean(residuals, sizes), estimate = power * model.mean + centre;
    const widened = [...residuals.map((value, k) => sizes[k] * (value - centre)), 1, -1], alike = widened.map(() => 1);
    const reach = model.t[n - model.few] * Math.sqrt(covariance(widened, widened, alike) * (1 - n / model.rows) / n);
    return [Math.max(0, estimate - reach), Math.min(1, estimate + reach)];
  }

  // The posterior of the reading and of the shift after decisions about suspicious rows.
  function modelled(model, places, sizes, wrong) {
    const certain = total(wrong.map((value, k) => value * sizes[k]));
    if (wrong.length === model.rows) return [certain / model.rows, certain / model.rows];
    const independent = Math.min(1, model.independent / wrong.length);
    const found = model.weights.map((t) => {
      const odds = places.map((place) => {
        const [first, second] = model.wrong[place];
        const share = Math.min(Math.max((1 - t) * first + t * second, .005), .995);
        return Math.log(share / (1 - share));
      });
      return model.shifts.map((shift) => ({
        evidence: independent * odds.reduce((sum, value, k) => sum + logExpit((wrong[k] ? 1 : -1) * (value + shift)), 0) - shift * shift / 2,
        decided: total(odds.map((value, k) => sizes[k] * Math.exp(logExpit(value + shift)))),
      }));
    });
    const largest = Math.max(...found.flat().map(({ evidence }) => evidence));
    const points = found.flatMap((line, t) => {
      const posterior = line.map(({ evidence }) => Math.exp(evidence - largest));
      return line.map(({ decided }, b) => ({
        rate: (certain + Math.max(0, model.rows * model.shares[t][b] - decided)) / model.rows,
        weight: posterior.reduce((sum, value, from) => sum + value * model.transfer[from][b], 0),
      }));
    });
    const all = total(points.map(({ weight }) => weight));
    points.sort((a, b) => a.rate - b.rate);
    const [low, high] = [(1 - model.level) / 2, (1 + model.level) / 2].map((share) => {
      let cumulated = 0;
      return (points.find(({ weight }) => (cumulated += weight / all) >= share) || points[points.length - 1]).rate;
    });
    return [Math.max(0, low - model.error), Math.min(1, high + model.error)];
  }

  return (model, places, predicted, wrong, random) => {
    const sizes = places.map((place) => model.sizes ? model.sizes[place] : 1);
    return random ? powered(model, sizes, predicted, wrong) : modelled(model, places, sizes, wrong);
  };
})();
